//! The authorization code for a client: the issuer's own, sealed with the client and the PKCE challenge it was issued
//! for.
//!
//! Keeps true: a code is redeemed only by the client that began the login, with the verifier of its challenge (RFC 7636
//! section 4.6), whether or not the issuer checks PKCE. Redeeming a code only once is left to the issuer.

use asp_call::clock::unix_seconds;
use asp_call::seal::Purpose;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::LoginRequest;

/// Life of a code, in seconds (RFC 6749 section 4.1.2 recommends at most ten minutes).
const LIFE: u64 = 600;

#[derive(Serialize, Deserialize)]
struct Code {
    #[serde(rename = "i")]
    of_issuer: String,
    #[serde(rename = "c")]
    challenge: String,
    /// Hash of the client's id.
    #[serde(rename = "u")]
    client: String,
    #[serde(rename = "r")]
    redirect: String,
    #[serde(rename = "e")]
    expires: u64,
}

/// Parameters of a token request that redeems a code.
pub(super) struct Redemption<'a> {
    pub(super) code: &'a str,
    pub(super) verifier: &'a str,
    pub(super) client_id: &'a str,
    pub(super) redirect: Option<&'a str>,
}

/// Returns the SHA-256 in base64url, as in a code challenge of method S256.
pub(super) fn hash(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(text))
}

/// Seals the issuer's code; `None` if it is too long. `client` is the hash of the client's id.
pub(super) fn seal(
    asked: &LoginRequest<'_>,
    of_issuer: &str,
    (client, challenge, redirect): (&str, &str, &str),
) -> Option<String> {
    let code = Code {
        of_issuer: of_issuer.to_owned(),
        challenge: challenge.to_owned(),
        client: client.to_owned(),
        redirect: redirect.to_owned(),
        expires: unix_seconds() + LIFE,
    };
    asked.seal(Purpose::Code, &code)
}

/// Opens the issuer's code; the error is the description of an `invalid_grant`.
pub(super) fn redeem(asked: &LoginRequest<'_>, shown: &Redemption<'_>) -> Result<String, &'static str> {
    let code: Option<Code> = asked.open(Purpose::Code, shown.code);
    let code = code.filter(|code| code.expires > unix_seconds());
    let code = code.ok_or("the code is not valid, or has expired")?;
    if code.client != hash(shown.client_id) {
        return Err("the code was issued to another client");
    }
    if shown.redirect.is_some_and(|redirect| redirect != code.redirect) {
        return Err("redirect_uri is not the one of the authorization request");
    }
    if code.challenge != hash(shown.verifier) {
        return Err("code_verifier does not match the code_challenge");
    }
    Ok(code.of_issuer)
}
