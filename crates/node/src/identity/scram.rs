//! SCRAM-SHA-256 (RFC 5802, RFC 7677): verifiers of passwords, and the server's side of a login.
//!
//! ```text
//!   client                                    server
//!   n,,n=,r=NONCE                        ->                            begin
//!                                        <-   r=NONCE+OURS,s=SALT,i=4096
//!   c=biws,r=NONCE+OURS,p=PROOF          ->                            finish
//!                                        <-   v=SIGNATURE
//! ```
//!
//! A verifier has PostgreSQL's stored form, `SCRAM-SHA-256$ITERATIONS:SALT$STOREDKEY:SERVERKEY`. So it can be copied
//! from PostgreSQL, or made by `psql`'s `\password` or by [`Verifier::of`]. A reader of a verifier cannot log in with
//! it, and can learn the password only by guessing.
//!
//! Invariants: for a user that does not exist, the challenge has the same salt each time and the login fails at the
//! same step (RFC 5802, section 9, and PostgreSQL's mock authentication); keys are compared in constant time.
//!
//! Over TLS a login can be bound to the server's certificate (`SCRAM-SHA-256-PLUS`, `tls-server-end-point` of RFC 5929): the
//! client then proves that it sees this certificate, so nobody between them can pass the login on. A client that could,
//! and was told that the server cannot, is refused: somebody has changed the offer.
//!
//! Not here: who the users are, and what a failure costs the next attempt (`Guard`).

use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::rand::SecureRandom;
use ring::{digest, hmac, pbkdf2};

/// The mechanism's name.
pub const MECHANISM: &str = "SCRAM-SHA-256";

/// The name of the mechanism with channel binding.
pub const MECHANISM_PLUS: &str = "SCRAM-SHA-256-PLUS";

/// What a client's first message begins with if the login is bound.
const END_POINT: &str = "p=tls-server-end-point";

/// Whether a login is bound to the TLS connection that it comes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelBinding<'a> {
    /// It cannot be: there is no TLS.
    Unoffered,
    /// The client chose the mechanism without it, though both were offered.
    Unused,
    /// The client chose [`MECHANISM_PLUS`]; the hash of the server's certificate.
    EndPoint(&'a [u8]),
}

/// Rounds of hashing in verifiers made here: PostgreSQL's default (`scram_iterations`), and the minimum of RFC 7677.
pub const ITERATIONS: u32 = 4096;

/// Rounds that a verifier may name: fewer are guessed too fast, more are a way to keep the processors busy.
const ITERATIONS_ALLOWED: RangeInclusive<u32> = ITERATIONS..=1_000_000;

/// Bytes that the salt of a verifier may have.
const SALT_BYTES_ALLOWED: RangeInclusive<usize> = 8..=64;

/// Most bytes of a password: nothing is hashed for a longer one.
pub(super) const PASSWORD_BYTES_MAX: usize = 1024;

/// Bytes of the salt of verifiers made here, as PostgreSQL's (`SCRAM_DEFAULT_SALT_LEN`).
const SALT_BYTES: usize = 16;

/// Bytes of our part of the nonce, as PostgreSQL's (`SCRAM_RAW_NONCE_LEN`).
const NONCE_BYTES: usize = 18;

type Key = [u8; digest::SHA256_OUTPUT_LEN];

/// Why a login by SCRAM ends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScramError {
    /// The password is wrong, or the user does not exist.
    #[error("the password is wrong")]
    WrongPassword,
    /// The client's message is not SCRAM's, or requests something that is not offered.
    #[error("malformed SCRAM message: {0}")]
    Malformed(&'static str),
    /// The login is not bound to this connection, or the offer was changed on its way: somebody may be between.
    #[error("SCRAM channel binding: {0}")]
    Binding(&'static str),
    /// The text is no verifier.
    #[error(
        "not a verifier: it must read SCRAM-SHA-256$ITERATIONS:SALT$STOREDKEY:SERVERKEY, with 4096 to 1000000 iterations and a salt of 8 to 64 bytes"
    )]
    Verifier,
    /// The system returned no random bytes.
    #[error("the system returned no random bytes")]
    Randomness,
}

/// What is stored instead of a password.
#[derive(Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Verifier {
    iterations: NonZeroU32,
    salt: Vec<u8>,
    stored: Key,
    server: Key,
}

impl Verifier {
    /// Whether a login by it costs more than by those made here.
    pub fn is_costly(&self) -> bool {
        self.iterations.get() > ITERATIONS
    }
}

impl fmt::Debug for Verifier {
    /// Leaves out the keys: they do not belong in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").field("iterations", &self.iterations).finish_non_exhaustive()
    }
}

impl Verifier {
    /// The verifier of a password, with a new salt.
    pub fn of(password: &str) -> Result<Verifier, ScramError> {
        let mut salt = vec![0; SALT_BYTES];
        random(&mut salt)?;
        Ok(Verifier::with(password, salt, NonZeroU32::new(ITERATIONS).ok_or(ScramError::Verifier)?))
    }

    fn with(password: &str, salt: Vec<u8>, iterations: NonZeroU32) -> Verifier {
        let salted = salted(password, &salt, iterations);
        let stored = hash(&mac(&salted, b"Client Key"));
        Verifier { iterations, salt, stored, server: mac(&salted, b"Server Key") }
    }

    /// Whether this is the password, for protocols that send it. It hashes as many rounds as the verifier names, which takes
    /// milliseconds of processor time; the keys are compared in constant time. No password is longer than 1,024 bytes, so
    /// nothing is hashed for one that is.
    pub fn check(&self, password: &str) -> bool {
        password.len() <= PASSWORD_BYTES_MAX
            && same(&Verifier::with(password, self.salt.clone(), self.iterations).stored, &self.stored)
    }
}

impl fmt::Display for Verifier {
    /// Writes PostgreSQL's stored form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (salt, stored, server) =
            (BASE64.encode(&self.salt), BASE64.encode(self.stored), BASE64.encode(self.server));
        write!(f, "{MECHANISM}${}:{salt}${stored}:{server}", self.iterations)
    }
}

impl FromStr for Verifier {
    type Err = ScramError;

    fn from_str(text: &str) -> Result<Verifier, ScramError> {
        let read = || {
            let (iterations, rest) = text.strip_prefix(MECHANISM)?.strip_prefix('$')?.split_once(':')?;
            let (salt, keys) = rest.split_once('$')?;
            let (stored, server) = keys.split_once(':')?;
            let key = |text| Key::try_from(decode(text)?).ok();
            Some(Verifier {
                iterations: iterations
                    .parse()
                    .ok()
                    .filter(|own: &NonZeroU32| ITERATIONS_ALLOWED.contains(&own.get()))?,
                salt: decode(salt).filter(|salt| SALT_BYTES_ALLOWED.contains(&salt.len()))?,
                stored: key(stored)?,
                server: key(server)?,
            })
        };
        read().ok_or(ScramError::Verifier)
    }
}

impl From<Verifier> for String {
    fn from(verifier: Verifier) -> String {
        verifier.to_string()
    }
}

impl TryFrom<String> for Verifier {
    type Error = ScramError;

    fn try_from(text: String) -> Result<Verifier, ScramError> {
        text.parse()
    }
}

/// A login that waits for the client's proof.
#[derive(Debug)]
pub struct Exchange {
    verifier: Verifier,
    /// Whether the user exists: only then can the login succeed.
    known: bool,
    /// `n,,`, `y,,`, or the header of a bound login with the hash behind it: the client's last message must repeat it.
    header: Vec<u8>,
    /// Whether the login is bound.
    is_bound: bool,
    nonce: String,
    /// The two messages so far; the proof covers them.
    transcript: String,
}

/// Makes the challenges for users that do not exist. They stay the same while its key is kept.
#[derive(Clone)]
pub struct Mock(Key);

impl fmt::Debug for Mock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mock")
    }
}

impl Mock {
    /// A mock with a new key.
    pub fn new() -> Result<Mock, ScramError> {
        new_secret().map(Mock::of)
    }

    /// A mock with this key.
    pub fn of(key: Key) -> Mock {
        Mock(key)
    }

    /// The verifier of `user`, who does not exist; no password is known for it.
    pub fn verifier(&self, user: &str) -> Verifier {
        let made = mac(&self.0, user.as_bytes());
        let iterations = NonZeroU32::new(ITERATIONS).unwrap_or(NonZeroU32::MIN);
        Verifier { iterations, salt: made[..SALT_BYTES].to_vec(), stored: made, server: mac(&made, b"server") }
    }
}

/// Draws the key of a [`Mock`].
///
/// Errors: [`ScramError::Randomness`].
pub fn new_secret() -> Result<[u8; 32], ScramError> {
    let mut key = [0; 32];
    random(&mut key)?;
    Ok(key)
}

/// Processes the client's first message. Returns our message and the login that waits for the next message. No
/// verifier: the user does not exist.
pub fn begin(
    (first, binding): (&[u8], ChannelBinding<'_>),
    user: &str,
    verifier: Option<&Verifier>,
    mock: &Mock,
) -> Result<(String, Exchange), ScramError> {
    let mut ours = [0; NONCE_BYTES];
    random(&mut ours)?;
    begin_with((first, binding), user, verifier, mock, &BASE64.encode(ours))
}

/// The rest of a first message behind its header, which must suit what was offered and chosen.
fn without_header<'a>(first: &'a str, binding: ChannelBinding<'_>) -> Result<&'a str, ScramError> {
    use ChannelBinding::{EndPoint, Unoffered, Unused};
    let Some((flag, bare)) = first.split_once(",,") else { return Err(ScramError::Malformed("it has no header")) };
    match (flag, binding) {
        ("n", Unoffered | Unused) | ("y", Unoffered) | (END_POINT, EndPoint(_)) => Ok(bare),
        ("y", Unused) => Err(ScramError::Binding("the client supports it and thinks that the server does not")),
        ("n" | "y", EndPoint(_)) => {
            Err(ScramError::Malformed("SCRAM-SHA-256-PLUS was selected, and it has no channel binding"))
        }
        (other, EndPoint(_)) if other.starts_with("p=") => {
            Err(ScramError::Malformed("this type of channel binding is not supported"))
        }
        (other, _) if other.starts_with("p=") => {
            Err(ScramError::Malformed("it has channel binding, and SCRAM-SHA-256-PLUS was not selected"))
        }
        _ => Err(ScramError::Malformed("its header is none of n,, y,, and p=")),
    }
}

fn begin_with(
    (first, binding): (&[u8], ChannelBinding<'_>),
    user: &str,
    verifier: Option<&Verifier>,
    mock: &Mock,
    ours: &str,
) -> Result<(String, Exchange), ScramError> {
    let first = std::str::from_utf8(first).map_err(|_| ScramError::Malformed("it is not UTF-8"))?;
    let bare = without_header(first, binding)?;
    // The user's name is the one of the startup packet, as with PostgreSQL; the name in this message is ignored.
    let mut fields = bare.split(',');
    if !fields.next().is_some_and(|field| field.starts_with("n=")) {
        return Err(ScramError::Malformed("it names no user"));
    }
    let theirs = fields
        .next()
        .and_then(|field| field.strip_prefix("r="))
        .filter(|nonce| !nonce.is_empty() && nonce.bytes().all(|byte| byte.is_ascii_graphic()));
    let theirs = theirs.ok_or(ScramError::Malformed("it has no nonce"))?;
    let known = verifier.is_some();
    let verifier = verifier.cloned().unwrap_or_else(|| mock.verifier(user));
    let nonce = format!("{theirs}{ours}");
    let answer = format!("r={nonce},s={},i={}", BASE64.encode(&verifier.salt), verifier.iterations);
    let transcript = format!("{bare},{answer}");
    let mut header = first.as_bytes()[..first.len() - bare.len()].to_vec();
    let is_bound = match binding {
        ChannelBinding::EndPoint(hash) => {
            header.extend_from_slice(hash);
            true
        }
        ChannelBinding::Unoffered | ChannelBinding::Unused => false,
    };
    Ok((answer, Exchange { verifier, known, header, is_bound, nonce, transcript }))
}

impl Exchange {
    /// Processes the client's last message. Returns our last message; with it the client is logged in.
    pub fn finish(self, last: &[u8]) -> Result<String, ScramError> {
        let last = std::str::from_utf8(last).map_err(|_| ScramError::Malformed("it is not UTF-8"))?;
        let (without_proof, proof) = last.rsplit_once(",p=").ok_or(ScramError::Malformed("it has no proof"))?;
        let mut fields = without_proof.split(',');
        let header = fields.next().and_then(|field| field.strip_prefix("c=")).and_then(decode);
        match header {
            Some(header) if header == self.header => {}
            Some(header) if self.is_bound && header.starts_with(END_POINT.as_bytes()) => {
                return Err(ScramError::Binding("the client sees another certificate than the server's"));
            }
            _ => return Err(ScramError::Malformed("its header differs from that of the first message")),
        }
        if fields.next().and_then(|field| field.strip_prefix("r=")) != Some(&self.nonce) {
            return Err(ScramError::Malformed("its nonce is not the one of this login"));
        }
        let proof = decode(proof).and_then(|proof| Key::try_from(proof).ok());
        let mut key = proof.ok_or(ScramError::Malformed("its proof is not 32 bytes"))?;

        let signed = format!("{},{without_proof}", self.transcript);
        let signature = mac(&self.verifier.stored, signed.as_bytes());
        key.iter_mut().zip(signature).for_each(|(byte, mask)| *byte ^= mask);
        let right = same(&hash(&key), &self.verifier.stored);
        if !(right && self.known) {
            return Err(ScramError::WrongPassword);
        }
        Ok(format!("v={}", BASE64.encode(mac(&self.verifier.server, signed.as_bytes()))))
    }
}

/// PBKDF2 of a password. Characters that SASLprep (RFC 4013) does not allow are kept as they are, as PostgreSQL and its
/// clients do.
fn salted(password: &str, salt: &[u8], iterations: NonZeroU32) -> Key {
    let prepared = stringprep::saslprep(password).unwrap_or(Cow::Borrowed(password));
    let mut all = [0; digest::SHA256_OUTPUT_LEN];
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, iterations, salt, prepared.as_bytes(), &mut all);
    all
}

/// Fills `bytes` with random bytes of the system.
///
/// Errors: [`ScramError::Randomness`].
pub fn random(bytes: &mut [u8]) -> Result<(), ScramError> {
    ring::rand::SystemRandom::new().fill(bytes).map_err(|_| ScramError::Randomness)
}

/// The bytes of Base64 with padding (RFC 4648, section 4).
fn decode(text: &str) -> Option<Vec<u8>> {
    BASE64.decode(text).ok()
}

fn mac(key: &[u8], text: &[u8]) -> Key {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text);
    let mut all = [0; 32];
    all.copy_from_slice(tag.as_ref());
    all
}

fn hash(bytes: &[u8]) -> Key {
    let mut all = [0; 32];
    all.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
    all
}

/// Whether two keys are equal, in constant time.
pub fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 7677, section 3.
    const SALT: &str = "W22ZaJ0SNY7soEsUEjb6gQ==";
    const FIRST: &[u8] = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
    const OURS: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    const LAST: &[u8] = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
        p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";

    fn pencil() -> Verifier {
        Verifier::with("pencil", decode(SALT).expect("it is"), NonZeroU32::new(4096).expect("it is"))
    }

    fn begin(first: &[u8], verifier: Option<&Verifier>) -> Result<(String, Exchange), ScramError> {
        bound(first, ChannelBinding::Unoffered, verifier)
    }

    fn bound(
        first: &[u8],
        binding: ChannelBinding<'_>,
        verifier: Option<&Verifier>,
    ) -> Result<(String, Exchange), ScramError> {
        begin_with((first, binding), "user", verifier, &Mock([7; 32]), OURS)
    }

    /// The client's last message, by a client that knows the password and repeats this as its header.
    fn last(password: &str, header: &[u8], first_bare: &str, answer: &str) -> String {
        let salted = salted(password, &decode(SALT).expect("it is"), NonZeroU32::new(4096).expect("it is"));
        let nonce = answer.split(',').next().expect("it has one");
        let without_proof = format!("c={},{nonce}", BASE64.encode(header));
        let signed = format!("{first_bare},{answer},{without_proof}");
        let key = mac(&salted, b"Client Key");
        let signature = mac(&hash(&key), signed.as_bytes());
        let proof: Vec<u8> = key.iter().zip(signature).map(|(byte, mask)| byte ^ mask).collect();
        format!("{without_proof},p={}", BASE64.encode(proof))
    }

    #[test]
    fn a_bound_login_holds_for_the_certificate_that_the_client_sees_and_no_other() {
        let first = "p=tls-server-end-point,,n=,r=abc";
        for (seen, is_right) in [(b"certificate of us", true), (b"certificate of xx", false)] {
            let binding = ChannelBinding::EndPoint(b"certificate of us");
            let (answer, exchange) = bound(first.as_bytes(), binding, Some(&pencil())).expect("it is SCRAM");
            let header = [b"p=tls-server-end-point,,", &seen[..]].concat();
            let told = exchange.finish(last("pencil", &header, "n=,r=abc", &answer).as_bytes());
            match is_right {
                true => assert!(told.is_ok(), "{told:?}"),
                false => assert!(matches!(told, Err(ScramError::Binding(_))), "{told:?}"),
            }
        }
        // Who leaves the hash out is not bound.
        let (answer, exchange) =
            bound(first.as_bytes(), ChannelBinding::EndPoint(b"us"), Some(&pencil())).expect("it is SCRAM");
        let told = exchange.finish(last("pencil", b"n,,", "n=,r=abc", &answer).as_bytes());
        assert!(matches!(told, Err(ScramError::Malformed(_))), "{told:?}");
    }

    #[test]
    fn a_header_has_to_suit_what_was_offered_and_chosen() {
        use ChannelBinding::{EndPoint, Unoffered, Unused};
        let chosen = EndPoint(b"hash");
        for (flag, binding, told) in [
            ("n", Unoffered, None),
            ("y", Unoffered, None),
            ("n", Unused, None),
            (END_POINT, chosen, None),
            // The offer of the mechanism with channel binding was taken away on its way to the client.
            ("y", Unused, Some("thinks that the server does not")),
            ("n", chosen, Some("no channel binding")),
            ("y", chosen, Some("no channel binding")),
            ("p=tls-unique", chosen, Some("type of channel binding")),
            (END_POINT, Unused, Some("was not selected")),
            (END_POINT, Unoffered, Some("was not selected")),
            ("x", Unoffered, Some("none of")),
        ] {
            let answer = bound(format!("{flag},,n=,r=x").as_bytes(), binding, Some(&pencil()));
            match (answer, told) {
                (Ok(_), None) => {}
                (Err(error), Some(told)) => assert!(error.to_string().contains(told), "{flag} {binding:?}: {error}"),
                (answer, _) => panic!("{flag} {binding:?}: {answer:?}"),
            }
        }
    }

    #[test]
    fn the_example_of_the_rfc_logs_in() {
        let (answer, exchange) = begin(FIRST, Some(&pencil())).expect("it is SCRAM");
        assert_eq!(answer, format!("r=rOprNGfwEbeRWgbNEkqO{OURS},s={SALT},i=4096"));
        assert_eq!(exchange.finish(LAST).expect("it is right"), "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    }

    #[test]
    fn wrong_passwords_and_unknown_users_fail_alike_at_the_same_step() {
        let other = Verifier::with("pencils", decode(SALT).expect("it is"), NonZeroU32::MIN);
        let (_, exchange) = begin(FIRST, Some(&other)).expect("it is SCRAM");
        assert_eq!(exchange.finish(LAST), Err(ScramError::WrongPassword));
        let (answer, exchange) = begin(FIRST, None).expect("asked like any other");
        assert_eq!(exchange.finish(LAST), Err(ScramError::WrongPassword));
        assert_eq!(begin(FIRST, None).expect("again").0, answer, "the salt gives nothing away");
    }

    #[test]
    fn tampered_messages_are_refused() {
        let firsts: [&[u8]; 6] = [b"", b"n,,r=x", b"n,,n=,r=", b"p=tls-unique,,n=,r=x", b"x,,n=,r=x", b"\xff,,n=,r=x"];
        for first in firsts {
            assert!(matches!(begin(first, Some(&pencil())), Err(ScramError::Malformed(_))), "{first:?}");
        }
        let text = std::str::from_utf8(LAST).expect("it is");
        let lasts = [
            text.replace("biws", "eSws"),
            text.replace("%hv", "%hw"),
            text.replace("VQ=", "V"),
            "c=biws".to_owned(),
            String::new(),
        ];
        for last in lasts {
            let (_, exchange) = begin(FIRST, Some(&pencil())).expect("it is SCRAM");
            assert!(matches!(exchange.finish(last.as_bytes()), Err(ScramError::Malformed(_))), "{last}");
        }
    }

    #[test]
    fn verifiers_are_read_as_postgresql_writes_them() {
        let verifier = pencil();
        let text = verifier.to_string();
        assert!(text.starts_with("SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$"), "{text}");
        assert_eq!(text.parse(), Ok(verifier));
        for broken in ["", "secret", "SCRAM-SHA-256$0:AAAA$AAAA:AAAA", &text[..text.len() - 4], &format!("{text}=")] {
            assert_eq!(broken.parse::<Verifier>(), Err(ScramError::Verifier), "{broken}");
        }
        for (rounds, salt, is_right) in [
            ("4095", 16, false),
            ("4096", 16, true),
            ("1000000", 16, true),
            ("1000001", 16, false),
            ("4096", 7, false),
            ("4096", 8, true),
            ("4096", 64, true),
            ("4096", 65, false),
        ] {
            let text = text.replace("4096", rounds).replace(SALT, &BASE64.encode(vec![7; salt]));
            assert_eq!(text.parse::<Verifier>().is_ok(), is_right, "{rounds} rounds, a salt of {salt} bytes");
        }
        let long = "x".repeat(1025);
        assert!(!Verifier::of(&long).expect("allowed").check(&long), "nothing is hashed for so long a password");
        assert!(pencil().check("pencil") && !pencil().check("pencils") && !pencil().check(""));
        let (one, other) = (Verifier::of("x").expect("allowed"), Verifier::of("x").expect("allowed"));
        assert_ne!(one, other, "each has its own salt");
    }
}
