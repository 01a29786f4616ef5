//! Sealing of state that travels through clients (session ids, cursors, request states) or rests in a store (such as
//! checkpoints of plugins).
//!
//! Owns: the AEAD keys, one for each purpose, derived from `ASP_SEAL_KEY` (current and previous). Refuses: meaning;
//! callers choose the purpose and the plaintext. Keeps true: a text sealed for one purpose or context opens for no
//! other, and text that was altered, truncated or sealed by someone else does not open at all. AES-256-GCM-SIV (RFC
//! 8452) allows random nonces for more messages than all gateways seal in the life of a key; texts sealed with
//! AES-256-GCM by earlier versions, under one key for all purposes, still open.

use aws_lc_rs::aead::{AES_256_GCM, AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

/// Label of the key for tags.
const TAGS: &[u8] = b"asp/tag/1\0";
/// Maximum length of a sealed text that is decoded at all, in bytes.
const MAX_SEALED_LEN: usize = 8 * 1024;

/// Purpose of a sealed text; part of the associated data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Session,
    Cursor,
    RequestState,
    /// The id of a server-sent event.
    Event,
    /// A plugin's checkpoint, in the store.
    Capsule,
    /// The answers that a running call has got so far, in the store.
    Answers,
    /// The request of a running call, in the store.
    Record,
    /// The record of a call that is not enough to continue it, in the store.
    Told,
    /// The outcome of a call, in the store.
    Outcome,
    /// The answer of a call under its key, in the ledger.
    Answer,
    /// The id of a client that registered itself.
    Client,
    /// The authorization code of a login, for its client.
    Code,
    /// A login in progress: the form for its user, and the response of the issuer.
    Login,
    /// A message between gateways.
    Bus,
    /// An event of a call, for other gateways.
    CallEvent,
    /// An answer or a cancel, for the gateway that runs its call.
    Inbox,
    /// The private half of a key that signs agent cards, in the store.
    CardKey,
    /// The URL and the secrets of a receiver of push notifications, in the store.
    Push,
    /// The end of a call that only read, for other gateways.
    Brief,
    /// A value that a plugin keeps, in the store.
    Storage,
    /// The address of a page for an approval, and the login of an approver there.
    Approval,
}

impl Purpose {
    /// All purposes, and the label of each.
    const ALL: [(Purpose, &'static [u8]); 21] = [
        (Purpose::Session, b"asp/session/1\0"),
        (Purpose::Cursor, b"asp/cursor/1\0"),
        (Purpose::RequestState, b"asp/request-state/1\0"),
        (Purpose::Event, b"asp/event/1\0"),
        (Purpose::Capsule, b"asp/capsule/1\0"),
        (Purpose::Answers, b"asp/answers/1\0"),
        (Purpose::Record, b"asp/record/1\0"),
        (Purpose::Told, b"asp/told/1\0"),
        (Purpose::Outcome, b"asp/outcome/1\0"),
        (Purpose::Answer, b"asp/answer/1\0"),
        (Purpose::Client, b"asp/client/1\0"),
        (Purpose::Code, b"asp/code/1\0"),
        (Purpose::Login, b"asp/login/1\0"),
        (Purpose::Bus, b"asp/bus/1\0"),
        (Purpose::CallEvent, b"asp/call-event/1\0"),
        (Purpose::Inbox, b"asp/inbox/1\0"),
        (Purpose::CardKey, b"asp/card-key/1\0"),
        (Purpose::Push, b"asp/push/1\0"),
        (Purpose::Brief, b"asp/brief/1\0"),
        (Purpose::Storage, b"asp/storage/1\0"),
        (Purpose::Approval, b"asp/approval/1\0"),
    ];

    fn label(self) -> &'static [u8] {
        Purpose::ALL.iter().find(|(of, _)| *of == self).map_or(&[][..], |(_, label)| *label)
    }
}

/// Keys are missing or invalid, or sealing failed.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    #[error("seal key must be at least 32 bytes long, got {0}")]
    ShortKey(usize),
    #[error("sealing failed")]
    Crypto,
}

/// Seals with the current key, and opens with the current and the previous one.
pub struct Sealer {
    current: Keys,
    previous: Option<Keys>,
}

/// The keys of one secret.
struct Keys {
    /// One key for each of [`Purpose::ALL`].
    by_purpose: Vec<(Purpose, LessSafeKey)>,
    /// Key of all purposes in versions before 0.1: opens, never seals.
    legacy: LessSafeKey,
    tags: hmac::Key,
}

impl Keys {
    fn new(secret: &[u8]) -> Result<Keys, SealError> {
        if secret.len() < 32 {
            return Err(SealError::ShortKey(secret.len()));
        }
        let extracted = Salt::new(HKDF_SHA256, b"asp/seal/2").extract(secret);
        let derive = |label: &'static [u8]| {
            let mut bytes = [0_u8; 32];
            let info = [label];
            let expanded = extracted.expand(&info, HKDF_SHA256).map_err(|_| SealError::Crypto)?;
            expanded.fill(&mut bytes).map_err(|_| SealError::Crypto)?;
            Ok::<[u8; 32], SealError>(bytes)
        };
        let mut by_purpose = Vec::with_capacity(Purpose::ALL.len());
        for (purpose, label) in Purpose::ALL {
            let bytes = derive(label)?;
            let key = UnboundKey::new(&AES_256_GCM_SIV, &bytes).map_err(|_| SealError::Crypto)?;
            by_purpose.push((purpose, LessSafeKey::new(key)));
        }
        let legacy = UnboundKey::new(&AES_256_GCM, &Sha256::digest(secret)).map_err(|_| SealError::Crypto)?;
        let tags = hmac::Key::new(hmac::HMAC_SHA256, &derive(TAGS)?);
        Ok(Keys { by_purpose, legacy: LessSafeKey::new(legacy), tags })
    }

    fn of(&self, purpose: Purpose) -> Option<&LessSafeKey> {
        self.by_purpose.iter().find(|(of, _)| *of == purpose).map(|(_, key)| key)
    }
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sealer(***)")
    }
}

impl Sealer {
    /// Creates a sealer. `current` and `previous` are secrets of at least 32 bytes, from which the key of each purpose
    /// is derived (RFC 5869).
    pub fn new(current: &[u8], previous: Option<&[u8]>) -> Result<Sealer, SealError> {
        Ok(Sealer { current: Keys::new(current)?, previous: previous.map(Keys::new).transpose()? })
    }

    /// Seals `plaintext` as unpadded base64url, bound to `purpose` and `context`.
    pub fn seal(&self, purpose: Purpose, context: &[u8], plaintext: &[u8]) -> Result<String, SealError> {
        Ok(URL_SAFE_NO_PAD.encode(self.seal_bytes(purpose, context, plaintext)?))
    }

    /// Seals `plaintext` of any length as bytes, for a store.
    pub fn seal_bytes(
        &self,
        purpose: Purpose,
        context: &[u8],
        plaintext: &[u8],
    ) -> Result<Vec<u8>, SealError> {
        let mut nonce = [0_u8; NONCE_LEN];
        aws_lc_rs::rand::fill(&mut nonce).map_err(|_| SealError::Crypto)?;
        let mut sealed = plaintext.to_vec();
        let key = self.current.of(purpose).ok_or(SealError::Crypto)?;
        key.seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(associated(purpose, context)),
            &mut sealed,
        )
        .map_err(|_| SealError::Crypto)?;
        let mut message = nonce.to_vec();
        message.append(&mut sealed);
        Ok(message)
    }

    /// Returns the tag (HMAC-SHA-256, base64url) that authenticates a text which clients may read as one of a gateway's
    /// own.
    pub fn tag(&self, context: &[u8], text: &str) -> String {
        URL_SAFE_NO_PAD.encode(hmac::sign(&self.current.tags, &tagged(context, text)))
    }

    /// Whether [`Sealer::tag`] made this tag for the same context and text.
    pub fn has_tag(&self, context: &[u8], text: &str, tag: &str) -> bool {
        let Ok(tag) = URL_SAFE_NO_PAD.decode(tag) else { return false };
        let tagged = tagged(context, text);
        let secrets = [Some(&self.current), self.previous.as_ref()];
        secrets.into_iter().flatten().any(|keys| hmac::verify(&keys.tags, &tagged, &tag).is_ok())
    }

    /// Opens a text from [`Sealer::seal`] for the same purpose and context; `None` for anything else.
    pub fn open(&self, purpose: Purpose, context: &[u8], text: &str) -> Option<Vec<u8>> {
        if text.len() > MAX_SEALED_LEN {
            return None;
        }
        self.open_bytes(purpose, context, &URL_SAFE_NO_PAD.decode(text).ok()?)
    }

    /// Opens bytes from [`Sealer::seal_bytes`] for the same purpose and context.
    pub fn open_bytes(&self, purpose: Purpose, context: &[u8], message: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = message.split_at_checked(NONCE_LEN)?;
        let aad = associated(purpose, context);
        let secrets = [Some(&self.current), self.previous.as_ref()];
        let keys = secrets.into_iter().flatten().flat_map(|keys| [keys.of(purpose), Some(&keys.legacy)]);
        keys.flatten().find_map(|key| {
            let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
            let mut buffer = sealed.to_vec();
            let plaintext = key.open_in_place(nonce, Aad::from(&aad), &mut buffer).ok()?;
            Some(plaintext.to_vec())
        })
    }
}

/// Returns the input of a tag; the length of the context comes first, so that no two pairs have the same one.
fn tagged(context: &[u8], text: &str) -> Vec<u8> {
    let length = (context.len() as u64).to_be_bytes();
    [length.as_slice(), context, text.as_bytes()].concat()
}

fn associated(purpose: Purpose, context: &[u8]) -> Vec<u8> {
    [purpose.label(), context].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = b"0123456789abcdef0123456789abcdef";
    const OTHER: &[u8] = b"fedcba9876543210fedcba9876543210";

    #[test]
    fn a_sealed_text_opens_only_for_its_purpose_and_context() {
        let sealer = Sealer::new(KEY, None).unwrap();
        let text = sealer.seal(Purpose::Session, b"k", b"hello").unwrap();
        assert_eq!(sealer.open(Purpose::Session, b"k", &text).as_deref(), Some(&b"hello"[..]));
        assert_eq!(sealer.open(Purpose::Cursor, b"k", &text), None);
        assert_eq!(sealer.open(Purpose::Session, b"l", &text), None);
        assert_eq!(Sealer::new(OTHER, None).unwrap().open(Purpose::Session, b"k", &text), None);
    }

    #[test]
    fn every_altered_or_truncated_text_stays_shut() {
        let sealer = Sealer::new(KEY, None).unwrap();
        let text = sealer.seal(Purpose::Session, b"", b"hello").unwrap();
        for at in 0..text.len() {
            let mut altered = text.clone().into_bytes();
            altered[at] = if altered[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(sealer.open(Purpose::Session, b"", std::str::from_utf8(&altered).unwrap()), None);
            assert_eq!(sealer.open(Purpose::Session, b"", &text[..at]), None);
        }
        assert_eq!(sealer.open(Purpose::Session, b"", &"A".repeat(1 << 20)), None);
    }

    #[test]
    fn the_previous_key_still_opens_after_a_rotation() {
        let text = Sealer::new(KEY, None).unwrap().seal(Purpose::Cursor, b"", b"x").unwrap();
        let rotated = Sealer::new(OTHER, Some(KEY)).unwrap();
        assert_eq!(rotated.open(Purpose::Cursor, b"", &text).as_deref(), Some(&b"x"[..]));
    }

    #[test]
    fn a_tag_is_of_one_context_and_text_and_of_no_other_key() {
        let sealer = Sealer::new(KEY, None).unwrap();
        let tag = sealer.tag(b"k", "hello");
        assert_eq!(tag, sealer.tag(b"k", "hello"), "the same each time");
        assert!(sealer.has_tag(b"k", "hello", &tag));
        for (context, text) in [(&b"l"[..], "hello"), (&b"k"[..], "hellp"), (&b"kh"[..], "ello")] {
            assert!(!sealer.has_tag(context, text, &tag), "{text}");
        }
        for other in ["", "A", "not base64url!", &tag[..tag.len() - 1]] {
            assert!(!sealer.has_tag(b"k", "hello", other), "{other:?}");
        }
        assert!(!Sealer::new(OTHER, None).unwrap().has_tag(b"k", "hello", &tag));
        assert!(Sealer::new(OTHER, Some(KEY)).unwrap().has_tag(b"k", "hello", &tag), "after a rotation");
    }

    #[test]
    fn what_an_earlier_version_sealed_opens_before_and_after_a_rotation() {
        // Nonce and AES-256-GCM under SHA-256 of the secret, as written before keys were derived by purpose.
        let nonce = [7_u8; NONCE_LEN];
        let key = UnboundKey::new(&AES_256_GCM, &Sha256::digest(KEY)).unwrap();
        let mut sealed = b"hello".to_vec();
        let aad = Aad::from(associated(Purpose::Capsule, b"k"));
        let key = LessSafeKey::new(key);
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut sealed).unwrap();
        let message = [nonce.to_vec(), sealed].concat();
        for sealer in [Sealer::new(KEY, None).unwrap(), Sealer::new(OTHER, Some(KEY)).unwrap()] {
            assert_eq!(sealer.open_bytes(Purpose::Capsule, b"k", &message).as_deref(), Some(&b"hello"[..]));
            assert_eq!(sealer.open_bytes(Purpose::Answers, b"k", &message), None);
        }
    }

    #[test]
    fn each_purpose_has_a_key_of_its_own() {
        let keys = Keys::new(KEY).unwrap();
        let sealed = |purpose| {
            let mut bytes = b"x".to_vec();
            let nonce = Nonce::assume_unique_for_key([0; NONCE_LEN]);
            keys.of(purpose).unwrap().seal_in_place_append_tag(nonce, Aad::empty(), &mut bytes).unwrap();
            bytes
        };
        let all: std::collections::HashSet<Vec<u8>> =
            Purpose::ALL.into_iter().map(|(purpose, _)| sealed(purpose)).collect();
        assert_eq!(all.len(), Purpose::ALL.len());
    }

    #[test]
    fn a_short_key_is_refused_and_the_key_is_never_printed() {
        assert!(matches!(Sealer::new(b"short", None), Err(SealError::ShortKey(5))));
        assert_eq!(format!("{:?}", Sealer::new(KEY, None).unwrap()), "Sealer(***)");
    }
}
