//! Signature Version 4 of a POST request with a body ("Signing AWS API requests", AWS General Reference).

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac;
use time::OffsetDateTime;
use time::macros::format_description;
use zeroize::Zeroizing;

use super::AwsCredentials;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// Scope of a signature.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope<'a> {
    pub(super) region: &'a str,
    pub(super) service: &'a str,
    pub(super) time: OffsetDateTime,
}

/// Returns a time as `20150830T123600Z`.
pub(super) fn date_time(time: OffsetDateTime) -> String {
    let form = format_description!("[year][month][day]T[hour][minute][second]Z");
    // Err: a year of more than four digits.
    time.format(form).unwrap_or_default()
}

/// Returns the value of the header `authorization` of a request for `/`. `headers` are all that are signed, with lower-case
/// names in alphabetical order.
pub(super) fn authorization(
    credentials: &AwsCredentials,
    scope: Scope<'_>,
    headers: &[(&str, &str)],
    body: &[u8],
) -> String {
    let time = date_time(scope.time);
    let day = time.get(..8).unwrap_or_default();
    let scope_text = format!("{day}/{}/{}/aws4_request", scope.region, scope.service);
    let lines: String = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let request = format!("POST\n/\n\n{lines}\n{names}\n{}", sha256(body));
    let to_sign = format!("{ALGORITHM}\n{time}\n{scope_text}\n{}", sha256(request.as_bytes()));
    let first = Zeroizing::new(format!("AWS4{}", credentials.secret_key.expose()));
    let mut key = mac(first.as_bytes(), day);
    for part in [scope.region, scope.service, "aws4_request"] {
        key = mac(key.as_ref(), part);
    }
    let signature = hex(mac(key.as_ref(), &to_sign).as_ref());
    let access_key = credentials.access_key.expose();
    format!("{ALGORITHM} Credential={access_key}/{scope_text}, SignedHeaders={names}, Signature={signature}")
}

fn mac(key: &[u8], text: &str) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes())
}

fn sha256(bytes: &[u8]) -> String {
    hex(digest(&SHA256, bytes).as_ref())
}

/// Formats bytes with two lower-case digits each.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The case `post-vanilla` of AWS' Signature Version 4 test suite.
    #[test]
    fn a_request_of_the_published_suite_has_its_signature() {
        let credentials = AwsCredentials {
            access_key: "AKIDEXAMPLE".into(),
            secret_key: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".into(),
            session_token: None,
        };
        let time = OffsetDateTime::from_unix_timestamp(1_440_938_160).unwrap();
        let scope = Scope { region: "us-east-1", service: "service", time };
        let headers = [("host", "example.amazonaws.com"), ("x-amz-date", "20150830T123600Z")];
        assert_eq!(date_time(time), headers[1].1);
        assert_eq!(
            authorization(&credentials, scope, &headers, b""),
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
             SignedHeaders=host;x-amz-date, \
             Signature=5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"
        );
    }
}
