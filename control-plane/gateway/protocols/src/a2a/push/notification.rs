//! One notification: the task in the version by which its receiver was registered, and the headers of its request.
//!
//! Keeps true: a header has no line break; secrets are marked, so that no log shows them; the signature covers the body, its
//! receiver, the caller's org and a short time, by a key that is published with those of agent cards and signs nothing that a
//! service accepts.

use asp_a2a::jsonrpc::encode_notification;
use asp_a2a::rest::MEDIA_TYPE;
use asp_a2a::version::VERSION_HEADER;
use asp_a2a::{Generation, Task};
use asp_call::clock::unix_seconds;
use asp_identity::minting::{CardAlgorithm, CardSigningKey};
use asp_pipeline::pushes::{DuePush, PushReceiver};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};
use reqwest::Url;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::a2a::card::KEYS;
use crate::replica::Replica;

/// Header with the token of the receiver.
const TOKEN: HeaderName = HeaderName::from_static("x-a2a-notification-token");
/// Header with the signature: a JWT.
const SIGNATURE: HeaderName = HeaderName::from_static("a2a-notification-signature");
/// Type of the JWT, which no other token has (RFC 8725 section 3.11).
const JWT_TYPE: &str = "a2a-notification+jwt";
/// Validity of a signature in seconds.
const SIGNED_FOR: u64 = 300;

/// A request to a receiver.
#[derive(Debug)]
pub(super) struct Notification {
    pub(super) headers: HeaderMap,
    pub(super) body: String,
}

impl Notification {
    /// Creates the notification of a task; `None` if a header cannot have the receiver's token or credentials.
    pub(super) fn of(receiver: &PushReceiver, task: Task) -> Option<Notification> {
        let generation = Generation::parse(&receiver.version)?;
        let media_type = match generation {
            Generation::V03 => "application/json",
            Generation::V10 => MEDIA_TYPE,
        };
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
        headers
            .insert(HeaderName::from_static(VERSION_HEADER), HeaderValue::from_static(generation.as_str()));
        if let Some(token) = &receiver.token {
            headers.insert(TOKEN, secret(token.expose())?);
        }
        if let Some((scheme, credentials)) = receiver.schemes.first().zip(receiver.credentials.as_ref()) {
            headers.insert(AUTHORIZATION, secret(&format!("{scheme} {}", credentials.expose()))?);
        }
        Some(Notification { headers, body: encode_notification(generation, task) })
    }

    /// Adds the signature. Without a key the notification is unsigned.
    pub(super) async fn sign(&mut self, gateway: &Replica, push: &DuePush, url: &Url) {
        let keys = gateway.card_keys.signers().await;
        let Some(key) = keys.iter().find(|key| key.public().algorithm() == CardAlgorithm::Es256) else {
            return;
        };
        let audience = url.origin().ascii_serialization();
        let signature = jwt(key, &gateway.config.public_url, &audience, push, &self.body);
        if let Some(value) = signature.and_then(|text| HeaderValue::from_str(&text).ok()) {
            self.headers.insert(SIGNATURE, value);
        }
    }
}

fn secret(text: &str) -> Option<HeaderValue> {
    // Bytes beyond ASCII, which a registration may have, are opaque to HTTP (RFC 9110 section 5.5).
    let mut value = HeaderValue::from_bytes(text.as_bytes()).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Returns a compact JWS (RFC 7515 section 7.1) with the digest of the body. `jti` is the same for each attempt.
fn jwt(key: &CardSigningKey, issuer: &str, audience: &str, push: &DuePush, body: &str) -> Option<String> {
    let now = unix_seconds();
    let header = json!({
        "alg": "ES256", "typ": JWT_TYPE, "kid": key.public().kid(), "jku": format!("{issuer}{KEYS}"),
    });
    let claims = json!({
        "iss": issuer, "aud": audience, "sub": push.call().to_string(), "jti": push.id,
        // Any caller of the platform may name any receiver, and chooses what its task says.
        "org": push.org(), "iat": now, "exp": now + SIGNED_FOR,
        "request_body_sha256": URL_SAFE_NO_PAD.encode(Sha256::digest(body.as_bytes())),
    });
    let part = |value: &serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let message = format!("{}.{}", part(&header), part(&claims));
    let signature = key.signature(message.as_bytes()).ok()?;
    Some(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

#[cfg(test)]
mod tests {
    use asp_platform::secret::Secret;
    use serde_json::Value;

    use super::*;

    fn receiver(version: &str) -> PushReceiver {
        PushReceiver {
            id: "r".into(),
            url: "https://example.com/hook".into(),
            token: Some(Secret::from("t-1")),
            schemes: vec!["Bearer".into(), "Basic".into()],
            credentials: Some(Secret::from("c-1")),
            version: version.into(),
            server: "demo".into(),
            primitive: "echo".into(),
        }
    }

    fn task() -> Task {
        Task { id: "t".into(), ..Task::default() }
    }

    /// Interop bug 5: the version of the registration decides, not that of any later request.
    #[test]
    fn a_notification_has_the_form_of_the_version_by_which_its_receiver_was_registered() {
        for (version, media_type, member) in
            [("1.0", "application/a2a+json", "task"), ("0.3", "application/json", "kind")]
        {
            let Notification { headers, body } = Notification::of(&receiver(version), task()).unwrap();
            assert_eq!(headers[CONTENT_TYPE], media_type);
            assert_eq!(headers["a2a-version"], version);
            assert_eq!(headers["x-a2a-notification-token"], "t-1");
            assert_eq!(headers[AUTHORIZATION], "Bearer c-1");
            assert!(headers[AUTHORIZATION].is_sensitive() && headers[TOKEN].is_sensitive());
            let body: Value = serde_json::from_str(&body).unwrap();
            assert!(body.get(member).is_some(), "{body}");
        }
    }

    #[test]
    fn what_a_receiver_did_not_ask_for_is_not_sent() {
        let plain = PushReceiver { token: None, credentials: None, ..receiver("1.0") };
        let headers = Notification::of(&plain, task()).unwrap().headers;
        assert!(!headers.contains_key(AUTHORIZATION) && !headers.contains_key(TOKEN));
    }

    #[test]
    fn a_token_beyond_ascii_is_sent_as_it_was_registered() {
        let foreign = PushReceiver { token: Some(Secret::from("tök")), ..receiver("1.0") };
        let headers = Notification::of(&foreign, task()).unwrap().headers;
        assert_eq!(headers[TOKEN].as_bytes(), "tök".as_bytes());
    }

    /// The codec refuses them; a row that has them all the same is not sent.
    #[test]
    fn no_header_has_a_line_break() {
        for text in ["a\r\nb", "a\nb", "a\rb", "a\0b"] {
            let bad = Secret::from(text);
            for receiver in [
                PushReceiver { token: Some(bad.clone()), ..receiver("1.0") },
                PushReceiver { credentials: Some(bad.clone()), ..receiver("1.0") },
                PushReceiver { schemes: vec![text.into()], ..receiver("1.0") },
            ] {
                assert!(Notification::of(&receiver, task()).is_none(), "{text:?}");
            }
        }
    }
}
