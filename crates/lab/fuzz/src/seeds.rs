//! Built-in inputs: small, each with a different shape. The mutator does the rest.
//!
//! Everything in them is made up.

/// Messages: usual, other delimiters, every line end, batches' headers, nothing but a header.
pub const MESSAGES: &[&[u8]] = &[
    b"MSH|^~\\&|LAB|NORTH|HIS|SOUTH|20260101120000||ORU^R01^ORU_R01|C1|P|2.5.1|||AL|NE||UNICODE UTF-8\r\
      PID|1||123^^^A&1.2.3&ISO^MR~456^^^B^SS||SAMPLE^ANN^\"\"||19700101|F\r\
      OBR|1|O1|F1|GLU^Glucose^L\rOBX|1|NM|GLU^Glucose^L||5.4|mmol/l|3.9-5.5|N|||F\r\
      OBX|2|TX|NOTE||line 1\\.br\\line 2 \\T\\ more~second\r",
    b"MSH|^~\\&#|A|B|C|D|20260101||ADT^A01|2|P|2.8\nEVN|A01|20260101\nPID|1||7||PLACEHOLDER^JO\nPV1|1|I|ICU^1^2\n",
    b"MSH*!?$%*A*B*C*D*20260101**ADT!A08*3*P*2.3\r\nPID*1**7**SAMPLE!X\r\nZPD*a$b%c?d\r\n",
    b"\xef\xbb\xbfMSH|^~\\&|A|B|C|D|20260101||ACK^A01^ACK|4|P|2.5\rMSA|AE|C1|text\rERR||PID^1^5|101^Required^HL70357|E\r",
    b"MSH|^~\\&\r",
    b"MSH|^|A|B\rPID|\r\r\nOBX||\n\nZ\r",
    b"MSH|^~\\&|A|B|C|D|||ADT^A01|5|P|2.3|||ER|SU||8859/1\rPID|||\xc9\xe9^\\XE9\\^\\F\\\\S\\\\R\\\\E\\\\T\\\r",
];

/// A byte that chooses the charset, and a message in one whose characters hide delimiters; see `hl7::fuzzing::reading`.
pub const READINGS: &[&[u8]] = &[
    b"\x00MSH|^~\\&|A|B|C|D|||ADT^A01|1|P|2.5||||||SHIFT_JIS\rPID|1||4||\x83\x7C\x81\x5B\x83\x8B^\x95\x5C||19700101\r",
    b"\x04MSH|^~\\&|\x83\x7C|B|C|D|||ADT^A01|1|P|2.5\rPID|1||4||\xED\x40^\xF0\x40\r",
    b"\x05MSH|^~\\&|A|B|C|D|||ADT^A01|1|P|2.5\rPID|1||4||\xD6\xEC\xE9\x46^\x81\x30\x81\x30\r",
    b"\x06MSH|^~\\&|A|B|C|D|||ADT^A01|1|P|2.5\rPID|1||4||\xB3\x5C\xA5\x5C^x\r",
    b"\x00MSH|^~\\&|A|B|C|D|||ADT^A01|1|P|2.5||||||~ISO IR87\rPID|1||4||\x1B$B;3EDB@O:\x1B(B^\x1B(I1\x1B(B\r",
    b"\x00\xFF\xFEM\0S\0H\0|\0^\0~\0\\\0&\0|\0A\0\r\0P\0I\0D\0|\0\x71\x5C\r\0",
];

/// Paths to mask, a NUL, and a message; see `hl7::fuzzing::mask`.
pub const MASKS: &[&[u8]] = &[
    b"\0MSH|^~\\&|A|B|C|D|||ADT^A01|1|P|2.5\rPID|1||4^^^A~5||SAMPLE^ANN||19700101\rNK1|1|SAMPLE\rOBX|1|TX|N||line\nline\r",
    b"PID-3.1\nPID-5.1.2\nNK1\nMSH-10\n\0MSH!*%?$!A\nPID!1!!4***A%5!!SAMPLE$X*ANN\nNK1!1!SAMPLE\nzzz\n",
    b"OBX-5.3\nPID\n\0FHS|^~\\&\rMSH|^|A\rPID|1\rMSH*^~\\&*A\rOBX*1***x^y~z\rBTS*1\r",
];

/// Replies of mail servers and webhooks.
pub const REPLIES: &[&[u8]] = &[
    b"250-mail.example.org\r\n250-SIZE 1000000\r\n250-AUTH PLAIN LOGIN\r\n250 STARTTLS\r\n",
    b"354 go on\r\n250 taken\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
];

/// Paths in every form.
pub const PATHS: &[&[u8]] = &[
    b"PID",
    b"PID-5.1",
    b"OBX[2]-5[2].1.1",
    b"OBX[*]-3[*]",
    b"OBX[last]-5[last]",
    b"OBX[3.1='GLU']-5",
    b"PID-3[4.1=\"A\"\"B\"].1",
    b"PID:5(2).1",
    b"PID.5.1.2",
    b"MSH-1 = 'x'",
];

/// Scripts of edits, a NUL, and a message; see `hl7::fuzzing::draft`.
pub const DRAFTS: &[&[u8]] = &[
    b"=PID-5.1\tNEW\n+PID-3\t9^^^C\n-PID-8\n\0MSH|^~\\&|A|B\rPID|1||123~456||SAMPLE^ANN||19700101|F\rOBX|1\r",
    b"i1\nd2\ns1PID|1|2\n=OBX[*]-3\ta&b\n=PID-5[3].2.2\tz\n\0MSH|^~\\&|A\nPID|1\nOBX|1|NM\nOBX|2|TX\n",
    b"=OBX[3.1='GLU']-5\t7\n-OBX[last]-3[2]\n=MSH-2\t^~\\&\n\0MSH|^~\\&|A|B\rOBX|1|NM|GLU^a~GLU^b||5\r",
];

/// The script before each message of the corpora.
pub const DRAFT_SCRIPT: &[u8] = b"=PID-5.1\tNEW\n+PID-3\t9^^^C\n-OBX[2]-5\ni3\n=OBX[*]-3[2].1\tA&B\nd5\n\0";

/// Ten bytes that choose delimiters, and text; see `hl7::fuzzing::escape`.
pub const ESCAPES: &[&[u8]] = &[
    b"^~\\&#*!?$%plain text",
    b"^~\\&#^~\\&#a|b^c~d\\e&f\rg\nh",
    b"^~\\&|*!?$%\\F\\\\S\\\\T\\\\R\\\\E\\\\X0D0A\\\\.br\\\\.sp3\\\\H\\\\Zx\\\\C2842\\",
];

/// Batches: whole, nested, wrong counts, trailers without headers, messages without a batch.
pub const BATCHES: &[&[u8]] = &[
    b"FHS|^~\\&|A|B\rBHS|^~\\&|A|B\rMSH|^~\\&|A|B|C|D|||ADT^A01|1|P|2.5\rPID|1\rMSH|^~\\&|A|B|C|D|||ADT^A01|2|P|2.5\rBTS|2\rFTS|1\r",
    b"BHS|^~\\&|A\nMSH|^~\\&|A\nPID|1\nBTS|7\nBTS|1\nFTS|9\n",
    b"MSH|^~\\&|A\rPID|1\rMSH|^~\\&|B\rBHS|^~\\&\rBHS|^~\\&\rFHS|^~\\&\rx\r",
    b"\r\nstray\r\nFHS|^~\\&\r\nFTS\r\n",
];

/// A byte that chooses limits, a byte that chooses cuts, and a stream; see `hl7::fuzzing::mllp`.
pub const STREAMS: &[&[u8]] = &[
    b"\xfc\x03\x0bMSH|^~\\&|A\rPID|1\r\x1c\r\x0bMSH|^~\\&|B\r\x1c\r",
    b"\xfd\x01junk\0\r\n\x0babc\x1c\x0bdef\x1c\x1c\r\x0b\x0bghi",
    b"\x21\x05\x0b0123456789\x1c\r\x0b01\x1c\r\x0b\x1c\r",
    b"\xfe\x00\x0b\x06\x1c\r\x0b\x15\x1c\rMSH|^~\\&|unframed\r",
];

/// Records of the engine: a message with one output, deliveries, an operation suspended (layout: `interop::record`).
pub const RECORDS: &[&[u8]] = &[
    b"\x01\x00\x00\x00\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x03\0adt\x02\0r1\x08\0\0\0MSH|^~\\&\x01\0\x02\0op\x00\0\x09\0\0\0\x02\0\
      \x00\0\0\0\0\x08\0\0\0\x01\x01\0\0\0|",
    b"\x01\0\x00\x10\0\0\0\0\0\0\0\0\x00\0\0\0\0\0\0\0\x02\0AA",
    b"\x01\0\0\0\0\0\0\0\0\x02\0op\x03\0why",
];

/// A file of exported messages with one message, whose checksums the target sets, and a batch of HL7 (layout: `interop::transfer`).
pub const TRANSFERS: &[&[u8]] = &[
    b"TERRACE-MESSAGES 1\nH5\0\0\0\0\0\0\0{\"source\":\"node-0000002a\",\"made_us\":9,\"masked\":false}\0\0\0\0M\
      9\0\0\0\x0b\0\0\0{\"id\":1,\"service\":\"in\",\"received_us\":1,\"status\":\"routed\"}MSH|^~\\&|A\r\0\0\0\0\
      E\x02\0\0\0\0\0\0\0{}\0\0\0\0",
    b"BHS|^~\\&|X\rMSH|^~\\&|A|B|||1||ADT^A01|1|P|2.5\rPID|1\rBTS|1\r",
];

/// Records of the audit: an entry with a read and a detail, the first entry of a chain, an anchor (layout: `node::audit`).
pub const AUDIT_RECORDS: &[&[u8]] = &[
    b"\x01\0\x02\x01\xe8\x03\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\
      0123456789abcdef0123456789abcdef\x03\0ada\x07\0control\x05\0local\x01\x007\x0c\0message.body\x0c\0message 4711\x03\0T-1\
      \x01\0\0\0\0\0\0\0\0\x01\x67\x12\0\0\0\0\0\0\x67\x12\0\0\0\0\0\0\x01\x03\0pid\x02\x0042",
    b"\x01\0\0\0\xff\xff\xff\xff\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
      \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
      \0\0\x04\0node\0\0\0\0\x09\0node.stop\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
    b"\x01\x09\0\0\0\0\0\0\x000123456789abcdef0123456789abcdef",
];

/// Answers of a directory: the end of a bind, an entry and the end of its search, the end of a connection; names (RFC 4511, 4514).
pub const LDAP_ANSWERS: &[&[u8]] = &[
    b"\x30\x0c\x02\x01\x01\x61\x07\x0a\x01\x00\x04\x00\x04\x00",
    b"\x30\x24\x02\x01\x02\x64\x1f\x04\x0cuid=ann,dc=x\x30\x0f\x30\x0d\x04\x04mail\x31\x05\x04\x03a@b\
      \x30\x84\x00\x00\x00\x10\x02\x01\x02\x65\x84\x00\x00\x00\x07\x0a\x01\x00\x04\x00\x04\x00",
    b"\x30\x0e\x02\x01\x00\x78\x09\x0a\x01\x34\x04\x00\x04\x02no",
    b"CN=Doctors\\2c Senior+sn=\\#1, OU=Groups,dc=example,dc=org",
    b"ann)(uid=*",
];

/// Of a provider of logins: a discovery document, keys, claims, a token (of RFC 7515, appendix A.3), an address.
pub const PROVIDERS: &[&[u8]] = &[
    br#"{"issuer": "https://id.example.org", "authorization_endpoint": "https://id.example.org/a", "token_endpoint":
      "https://id.example.org/t", "jwks_uri": "https://id.example.org/k", "end_session_endpoint": "https://id.example.org/e"}"#,
    br#"{"keys": [{"kty": "EC", "kid": "b", "crv": "P-256", "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
      "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}, {"kty": "RSA", "n": "AQAB", "e": "AQAB"}]}"#,
    br#"{"iss": "https://id.example.org", "sub": "1", "aud": ["terrace"], "exp": 1800000300, "iat": 1800000000, "nonce": "n",
      "preferred_username": "ann", "groups": ["doctors"]}"#,
    b"eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.\
      DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q",
    b"https://id.example.org:8443/realms/a?b=c",
];

/// Records of the store: a transaction that puts, deletes and drops; a commit record (layout: `store::record`).
pub const TRANSACTIONS: &[&[u8]] = &[
    b"\x01\0\0\0\x04\0\0\0\x01\x40\x1e\x18\x24\x0a\x06\0\xe8\x03\0\0\x05\0\0\0\x03\0\0\0alphaone\
      \xe8\x03\0\0\x04\0\x01\0\0\0\0\0beta\x07\0\0\0\0\0\x02\0\0\0\0\0\x07\0\0\0\x01\0\0\0\0\0\0\0k",
    b"\x01\0\0\0\x02\0\0\0\x02\0\0\0\0\0\0\0\x02\0\0\0\0\x10\0\0\0\0\0\0\0\x20\0\0\0\0\0\0\0\0\0\0",
];

/// Changes to a journal; see `stored::journal`.
pub const DAMAGES: &[&[u8]] = &[
    b"\x01",
    b"\x00",
    b"\x01\x00\x00\x10\x01",
    b"\x00\x00\x00\x10\x01",
    b"\x01\x01\x20\x10\x00\x02\x00\x30\x80",
    b"\x00\x02\x00\x40\x00\x02\x00\x42\x00\x02\x00\x44\x00",
    b"\x01\x00\x08\x00\xff",
    b"\x03\x00\x00\x10\x01",
    b"\x02\x01\x00\x20\x00",
];

/// Transforms: every statement, most functions; one with a message of its own behind a NUL.
pub const TRANSFORMS: &[&[u8]] = &[
    b"set MSH-5 = 'LAB'; copy PID-18 to PID-4\nmove PID-3[2] to PID-4\nappend PID-3 = hl7('9^^^A')\ndelete PID-3[5='SS']\n\
      let n = upper(PID-5.1) + ' ' + trim(PID-5.2)\nset PID-9 = substring(n, -4, 2)\ncall inner\n",
    b"for each OBX as o {\n  set o-1 = index(o)\n  if o-8 = 'HH' and o-5 > 6 { set o-8 = 'H' } else if o-5 is empty { skip }\n\
      else { insert NTE after o as t { set t-3 = 'p: ' + o-3.2 } }\n}\nfor each OBX under OBR as x { delete x }\n",
    b"for each PID-3 as id { if id.5 = 'SS' { delete id } else { set id.4 = pad_left(id.1, 8, '0') } }\n\
      set EVN-2 = date(EVN-2, 'hl7', \"yyyy-MM-dd'T'HH:mm\", '')\nset EVN-6 = add_months(EVN-2, -1)\nset MSH-7 = now('yyyyMMddHHmmssZ')\n",
    b"if not exists PV1 or PID-8 not in ('F', 'M') { fail \"no ward\" }\nset PV1-3.1 = lookup(wards, PV1-3.1, null)\n\
      set PV1-3.2 = join(OBX[*]-3.1, ', ') + replace(split(PID-5.1, ' ', 1), 'a', 'b')\0MSH|^~\\&|A\rPV1|1\rPID|1|\r",
];

/// Rules: both modes, every action, conditions that an index can and cannot serve.
pub const RULES: &[&[u8]] = &[
    b"match first\nrule a when MSH-9.1 = 'ADT' and MSH-9.2 in ('A01', 'A04') { send to billing using inner; send to registry }\n\
      rule t when MSH-11 = 'T' { drop 'tests stay' }\notherwise { reject 'not expected' code 200 }\n",
    b"match all\nrule x when any OBX[*]-8 != 'N' or not PID-19 is null { send to registry }\n\
      rule y when upper(PID-5.1) starts with 'S' and PV1-3.1 in table wards and OBX[3.1='GLU']-5 > 5 { send to billing }\n\
      rule z when MSH-9.1 = 'ORU' and exists OBX and PID-5 matches 'A?*' { send to billing using inner }\n",
];

/// Choices for `lang::fuzzing::generated`: any bytes will do.
pub const CHOICES: &[&[u8]] = &[
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
    b"\x01\x40\x80\xc0\xff\x03\x07\x0f\x1f\x3f\x7f\x55\xaa\x11\x22\x33\x44\x66\x77\x88\0MSH|^~\\&|A\rPID|1||2~3\rOBX|1|||5\r",
];

/// Messages of SQL clients: wishes for encryption, a cancel request, a start, every message, answers of a login.
pub const CONVERSATIONS: &[&[u8]] = &[
    b"\0\0\0\x08\x04\xd2\x16\x30\0\0\0\x08\x04\xd2\x16\x2f\0\0\0\x1e\0\x03\0\x02user\0ann\0options\0-c a=b\0\0p\0\0\0\x08ABCD",
    b"\0\0\0\x10\x04\xd2\x16\x2e\0\0\0\x07abcd",
    b"Q\0\0\0\x0dselect 1\0P\0\0\0\x18s\0select $1\0\0\x01\0\0\0\x17B\0\0\0\x1ap\0s\0\0\x01\0\x01\0\x01\0\0\0\x04\0\0\0\x07\0\x01\0\x01\
      D\0\0\0\x07Pp\0E\0\0\0\x0ap\0\0\0\0\x02C\0\0\0\x07Ss\0H\0\0\0\x04S\0\0\0\x04",
    b"d\0\0\0\x081\tx\nc\0\0\0\x04f\0\0\0\x08why\0X\0\0\0\x04",
    b"SCRAM-SHA-256\0\0\0\0\x0bn,,n=,r=abc",
    b"n,,n=user,r=rOprNGfwEbeRWgbNEkqOc=biws,r=rOprNGfwEbeRWgbNEkqOx,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    b"SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=",
];

/// Values of SQL, as text and in binary layouts.
pub const VALUES: &[&[u8]] = &[
    b"-9223372036854775808",
    b"12345678901234567890.0123456789e-5",
    b"5e-324",
    b"0044-03-15 12:00:00.5+02:30 BC",
    b"294276-12-31 23:59:59.999999",
    b"1 year 2 mons -3 days +04:05:06.5",
    b"\\x00ff",
    b"{A0EE-BC99-9C0B-4EF8-BB6D-6BB9-BD38-0A11}",
    b"\x01{\"bb\": [1.50, -2e3, null], \"a\": \"\\u00e4\"}",
    b"{1,NULL,\"a \\\" b\"}",
    b"\0\x03\0\x01\x40\0\0\x02\0\x01\x09\x29\x1a\x2c",
    b"\0\0\0\0\0\0\x03\xe8\0\0\0\x02\xff\xff\xff\xfe",
    b"\x7f\xff\xff\xff\xff\xff\xff\xff",
];

/// A byte that determines where to cut, and data of COPY in each format; see `sql::wire::fuzzing::copy`.
pub const COPIES: &[&[u8]] = &[
    b"\x40a\t\\N\r\nb\\tc\t\\\\\nx\ty\n\\.\nignored",
    b"\x80h1,h2\n\"a\nb\",\n\"\"\"\",2\n\\.\n",
    b"\xc0PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\x02ex\0\x02\0\0\0\x01a\xff\xff\xff\xff\0\x02\0\0\0\0\0\0\0\x01b\xff\xff",
];

/// What a client of NBD sends: its flags, options, then a read, a write and a flush.
pub const NBD_CLIENTS: &[&[u8]] = &[
    b"\0\0\0\x03IHAVEOPT\0\0\0\x08\0\0\0\0IHAVEOPT\0\0\0\x0a\0\0\0\x1c\0\0\0\x01a\0\0\0\x01\0\0\0\x0fbase:allocation\
      IHAVEOPT\0\0\0\x07\0\0\0\x07\0\0\0\x01a\0\0\
      \x25\x60\x95\x13\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\x10\0\
      \x25\x60\x95\x13\0\x01\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\x10\0\0\0\0\x02ab\
      \x25\x60\x95\x13\0\0\0\x03\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0\0",
    b"\0\0\0\x01IHAVEOPT\0\0\0\x03\0\0\0\0IHAVEOPT\0\0\0\x05\0\0\0\0IHAVEOPT\0\0\0\x01\0\0\0\x01a",
];

/// What a server of NBD sends: a choice and a greeting, answers to options, and a reply.
pub const NBD_SERVERS: &[&[u8]] =
    &[b"\0NBDMAGICIHAVEOPT\0\x03\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x08\0\0\0\x01\0\0\0\0\
      \0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x0a\0\0\0\x01\0\0\0\0\
      \0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x07\0\0\0\x03\0\0\0\x0c\0\0\0\0\0\0\0\x10\0\0\0\x0d\
      \0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x07\0\0\0\x01\0\0\0\0\
      \x67\x44\x66\x98\0\0\0\0\0\0\0\0\0\0\0\x01"];

/// Two choices, and replies of a server of NBD: simple ones, a hole, an error, extents.
pub const NBD_REPLIES: &[&[u8]] = &[
    b"\x0e\xff\x67\x44\x66\x98\0\0\0\0\0\0\0\0\0\0\0\x02\x67\x44\x66\x98\0\0\0\x1c\0\0\0\0\0\0\0\x03",
    b"\x0f\x20\x66\x8e\x33\xef\0\x01\0\x02\0\0\0\0\0\0\0\x01\0\0\0\x0c\0\0\0\0\0\0\x10\0\0\0\x30\0\
      \x66\x8e\x33\xef\0\x01\x80\x01\0\0\0\0\0\0\0\x07\0\0\0\x06\0\0\0\x05\0\0\
      \x66\x8e\x33\xef\0\x01\0\x05\0\0\0\0\0\0\0\x08\0\0\0\x0c\0\0\0\x01\0\x01\0\0\0\0\0\x03",
];

/// The head of a slot of a superblock, without its checksum: one of three copies; see `volume::fuzzing::superblock`.
pub const SUPERBLOCKS: &[&[u8]] = &[
    b"TERRVOL\0\x01\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0volume for tests\0\x03\x02\0\x01\0\0\0\x01\0\0\0\x01\0\0\0",
    b"TERRVOL\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0volume for tests\x01\x02\x01\x03",
];

/// A kind, and the head of a record; see `volume::fuzzing::record`.
pub const VOLUME_RECORDS: &[&[u8]] = &[
    b"\x02\x01\0\0\0\x01\0\0\0\x05\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x02\0\0\0\x01\0\0\0",
    b"\x01\x01\0\0\0\x01\0\0\0\x06\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x7f\x11\x22\x33",
    b"\x03\x01\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0",
];

/// The head of a sector and some sums; see `volume::fuzzing::sectors`.
pub const SECTORS: &[&[u8]] = &[
    b"\0\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x01\0\0\0\xff\xff\xff\xff\0\0\0\0",
    b"\0\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\xff\0\xff",
];

/// Envelopes of keys, with one data key and with two; the target sets their checksum (layout: `encryption::Envelope`).
pub(crate) const ENVELOPES: &[&[u8]] = &[&envelope::<108>(1), &envelope::<184>(2)];

/// An envelope of `keys` data keys, which begins at byte 32 and has 76 bytes for each.
const fn envelope<const BYTES: usize>(keys: u8) -> [u8; BYTES] {
    let mut bytes = [7; BYTES];
    let head = b"TERRKEY\0\x01\0\0\0\0\0\0\0\x03\0\0\0";
    let mut at = 0;
    while at < head.len() {
        bytes[at] = head[at];
        at += 1;
    }
    (bytes[20], bytes[21], bytes[22], bytes[23]) = (keys, 0, 0, 0);
    let mut key = 0;
    while key < keys {
        let at = 32 + 76 * key as usize;
        (bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]) = (key + 1, 0, 0, 0);
        key += 1;
    }
    bytes
}

/// Traces of other programs; the first byte names the format and the way, as `plan::fuzzing::trace` takes it.
pub(crate) const TRACES: &[&[u8]] = &[
    b"\x00  8,0    3        1     0.000000000   697  Q   W 223488 + 8 [x]\n  8,0 1 4 0.000600000 1 Q FWFS 0 + 8 [x]\nCPU0 (8,0):\n",
    b"\x01fio version 2 iolog\n/f add\n/f open\n/f read 0 4096\n/f wait 250 0\n/f sync 0 0\n/f close\n",
    b"\x41fio version 3 iolog\n20 /f add\n124 /f read 61440 4096\n385 /f write 774144 4096\n",
    b"\x02128166372003061629,usr,0,Read,7014609920,24576,41286\n128166372016382155,usr,1,Write,0,4096,3\n",
    b"\x13version,time,op,size,lbn\n1,5633898,2a,512,42932745\n1,5633899,28,8192,40409911\n",
    b"\x04\xf4\0\0\0\0\x02\0\0\x01\0\0\0\x2a\0\0\x01\x09\x1a\x8f\x02\0\0\0\0\x22\xcf\x82\xbe\x1f\x05\0\0",
    b"\x050,nz:u:a,b,8,100,3,get,0\n2,nz:u:a,b,8,100,3,set,60\n3,k,1,5,3,delete,0\n",
    b"\x06op_time,key,key_size,op,op_count,size,cache_hits,ttl\n10,7,4,GET,2,50,1,0\n12,20,4,SET,1,35,0,0\n",
    b"\x07\x64\0\0\0\x05\0\0\0\0\0\0\0\xbc\x02\0\0\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\x28# time, object, size, next_access_vtime\n0, 13053225291711363978, 737, 13\n1.5, 5, 248, 6570713\n",
];

/// Prices as providers publish them; the first byte names the format, as `plan::fuzzing::prices` takes it.
pub(crate) const PRICES: &[&[u8]] = &[
    b"\x00{\"formatVersion\":\"v1.0\",\"publicationDate\":\"2026-11-05T00:00:00Z\",\"products\":{\"A\":{\"productFamily\":\"Storage\",\"attributes\":{\"volumeApiName\":\"gp3\",\"regionCode\":\"us-east-1\",\"usagetype\":\"EBS:VolumeUsage.gp3\"}}},\"terms\":{\"OnDemand\":{\"A\":{\"A.J\":{\"priceDimensions\":{\"x\":{\"unit\":\"GB-Mo\",\"pricePerUnit\":{\"USD\":\"0.08\"}}}}}}}}",
    b"\x01{\"Items\":[{\"currencyCode\":\"USD\",\"retailPrice\":0.0002,\"armRegionName\":\"eastus\",\"meterName\":\"Ultra LRS Provisioned Capacity\",\"productName\":\"Ultra Disks\",\"unitOfMeasure\":\"1 GiB/Hour\",\"type\":\"Consumption\"}],\"NextPageLink\":null}",
    b"\x02{\"skus\":[{\"description\":\"Hyperdisk Balanced IOPS in Iowa\",\"category\":{\"usageType\":\"OnDemand\"},\"serviceRegions\":[\"us-central1\"],\"pricingInfo\":[{\"pricingExpression\":{\"usageUnit\":\"mo\",\"tieredRates\":[{\"unitPrice\":{\"currencyCode\":\"USD\",\"units\":\"0\",\"nanos\":6000000}}]}}]}],\"nextPageToken\":\"\"}",
    b"\x03medium,of,price,unit,piece_gb,low,high\nddr5,\"RDIMM, 64 GB\",640,USD/piece,64,320,960\nnvme-p4510,4 TB,0.25,USD/GB,,,\n",
    b"\x04[[price]]\nmedium = \"ddr5\"\nof = \"a DIMM\"\nvalue = 9\nunit = \"USD/GB\"\nbasis = \"spot\"\ndated = \"2026-01\"\nsource = \"a market\"\nconfidence = \"S\"\n",
];

/// A profile, and the contents of one: two lengths, the summary, the reuse, a chunk.
pub(crate) const PROFILES: &[&[u8]] = &[
    include_bytes!("../../../storage/profile/src/golden.tprof"),
    include_bytes!("../../../storage/profile/src/golden-content.bin"),
];
