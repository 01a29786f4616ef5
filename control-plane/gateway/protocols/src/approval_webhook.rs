//! Receiver of notifications about requests for approval, at a URL that the operator names.

use asp_outbound::{Destination, Outbound, OutboundError};
use asp_platform::secret::Secret;
use reqwest::Url;

use crate::push::ANSWERS_WITHIN;

/// Ports of services that read lines of text, which a request could fill with commands: SMTP and Redis.
const REFUSED_PORTS: [u16; 4] = [25, 465, 587, 6379];

/// Receiver of notifications.
pub struct ApprovalWebhook {
    /// Its path is a secret at many receivers.
    url: Secret,
    outbound: Outbound,
}

/// Whether the text can be the URL of a receiver.
pub fn is_webhook(text: &str) -> bool {
    let is_ambiguous = |char: char| matches!(char, '\\' | '#') || char.is_whitespace() || char.is_control();
    let is_target = |url: &Url| {
        matches!(url.scheme(), "http" | "https")
            && url.username().is_empty()
            && url.password().is_none()
            && !url.port().is_some_and(|port| REFUSED_PORTS.contains(&port))
    };
    !text.contains(is_ambiguous) && Url::parse(text).is_ok_and(|url| is_target(&url))
}

impl ApprovalWebhook {
    /// Creates the receiver at a URL from the operator's settings.
    pub fn new(url: Secret) -> Result<ApprovalWebhook, OutboundError> {
        if !is_webhook(url.expose()) {
            return Err(OutboundError::Url);
        }
        Ok(ApprovalWebhook { url, outbound: Outbound::with_silence(ANSWERS_WITHIN)? })
    }

    /// Returns where to send; the operator's own URL may be private.
    pub(crate) fn destination(&self) -> Result<Destination<'_>, OutboundError> {
        self.outbound.trusted(self.url.expose())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_webhook_has_an_address_of_the_web_alone() {
        for good in ["https://chat.example/hook?x=1", "http://127.0.0.1:8080/hook"] {
            assert!(is_webhook(good), "{good}");
        }
        for bad in [
            "",
            "chat.example",
            "ftp://chat.example/",
            "file:///etc/passwd",
            "https://user@chat.example/",
            "https://:pass@chat.example/",
            "https://chat.example:25/",
            "http://127.0.0.1:6379/",
            "https://chat.example/#x",
            "https://chat.example\\@127.0.0.1/",
            "https://chat.example/a b",
            "https://chat.example/\r\nX: y",
        ] {
            assert!(!is_webhook(bad), "{bad:?}");
            assert!(ApprovalWebhook::new(Secret::from(bad)).is_err(), "{bad:?}");
        }
    }
}
