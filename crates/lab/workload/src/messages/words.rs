//! The words that messages are made of. All are plainly invented: no person is called PLACEHOLDER.

/// Family names within ASCII.
pub(super) const FAMILY: [&str; 16] = [
    "SAMPLE",
    "PLACEHOLDER",
    "TESTPERSON",
    "MOCKINGTON",
    "FICTITIOUS",
    "DUMMYFORD",
    "SPECIMEN",
    "IMAGINARY",
    "EXAMPLETON",
    "NOBODYSON",
    "MADEUP",
    "SYNTHETIC",
    "PRETEND-SMITH",
    "O'EXAMPLE",
    "DE LA PRUEBA",
    "VAN VOORBEELD",
];

/// Family names with letters of ISO-8859-1.
pub(super) const FAMILY_ACCENTED: [&str; 8] = [
    "M\u{dc}STERFRAU",
    "\u{c9}CHANTILLON",
    "PR\u{d8}VESEN",
    "FICT\u{cd}CIO",
    "P\u{c5}HITTAD",
    "EJEMPL\u{d3}N",
    "BEISPIELM\u{c4}NNER",
    "IMAGIN\u{c1}RIA",
];

/// Given names within ASCII.
pub(super) const GIVEN: [&str; 12] =
    ["ALPHA", "BRAVO", "CHARLIE", "DELTA", "ECHO", "FOXTROT", "GOLF", "HOTEL", "INDIA", "JULIETT", "KILO", "LIMA"];

/// Given names with letters of ISO-8859-1.
pub(super) const GIVEN_ACCENTED: [&str; 6] =
    ["ANDR\u{c9}", "ZO\u{cb}", "J\u{d6}RG", "FRAN\u{c7}OISE", "\u{c5}SA", "BEGO\u{d1}A"];

/// Streets and towns of the same kind.
pub(super) const TOWN: [&str; 6] =
    ["SAMPLEVILLE", "TESTFORD", "MOCK HARBOR", "NOWHERE", "EXAMPLE FALLS", "PLACEHOLDER CREEK"];

/// Sending applications and facilities.
pub(super) const SENDERS: [(&str, &str); 6] = [
    ("ADTSYS", "NORTH"),
    ("LABSYS", "CENTRAL LAB"),
    ("RADSYS", "IMAGING"),
    ("ORDERS", "EAST"),
    ("BOOKING", "OUTPATIENT"),
    ("ICU", "WEST"),
];

/// Observations: code, name, unit, reference range, coded as if from a local catalogue.
pub(super) const TESTS: [(&str, &str, &str, &str); 16] = [
    ("GLU", "Glucose", "mmol/L", "3.9-5.8"),
    ("NA", "Sodium", "mmol/L", "135-145"),
    ("K", "Potassium", "mmol/L", "3.5-5.1"),
    ("CL", "Chloride", "mmol/L", "98-107"),
    ("CREA", "Creatinine", "umol/L", "59-104"),
    ("UREA", "Urea nitrogen", "mmol/L", "2.1-7.1"),
    ("HGB", "Hemoglobin", "g/L", "130-175"),
    ("HCT", "Hematocrit", "L/L", "0.40-0.52"),
    ("WBC", "Leukocytes", "10*9/L", "4.0-10.0"),
    ("PLT", "Platelets", "10*9/L", "150-400"),
    ("CRP", "C reactive protein", "mg/L", "0-5"),
    ("ALT", "Alanine aminotransferase", "U/L", "0-50"),
    ("AST", "Aspartate aminotransferase", "U/L", "0-50"),
    ("TSH", "Thyrotropin", "mIU/L", "0.4-4.0"),
    ("FER", "Ferritin", "ug/L", "30-400"),
    ("LAC", "Lactate", "mmol/L", "0.5-2.2"),
];

/// Free text with the escape sequences of the field: subcomponent, field and component separators, line breaks, hex.
pub(super) const REMARKS: [&str; 8] = [
    "Specimen slightly hemolyzed, result confirmed by a second measurement.",
    "Result phoned to ward \\T\\ read back.",
    "Reference range: adult\\F\\male. See the laboratory handbook for other groups.",
    "First line of the finding.\\.br\\Second line of the finding.\\.br\\No further remarks.",
    "Ratio 1\\S\\2 within the expected limits.",
    "Hex escape for a line end:\\X0D\\then the rest of the sentence.",
    "Nothing abnormal detected in the fields examined.",
    "Repeat in three days if symptoms persist.",
];
