//! Agent cards: one document for both versions, its canonical form, its signatures.
//!
//! Owns: the hybrid card ([`build`]), the projection of a card to the schema of 1.0 (`schema`), canonical JSON ([`canonical`]),
//! signatures ([`sign`], [`verify`]). Keeps true: a card that is built here has no empty text, list or object and no `false` that
//! 1.0 leaves out, except where a requirement has no scopes; so that a verifier by the specification and one of the SDKs, which
//! first drops everything empty, see the same bytes.

mod build;
mod canonical;
mod schema;
mod sign;

pub use build::{
    Binding, Capabilities, CardInput, Interface, OauthFlow, Provider, Requirement, SecurityScheme, build,
};
pub use canonical::{NotCanonical, canonical};
pub use sign::{Algorithm, CardKey, CardSignature, CardSigner, SignFault, VerifyFault, sign, verify};

use asp_json::Json;
use aws_lc_rs::digest::{SHA256, digest};

/// Path of a card below an agent's base path.
pub const PATH: &str = "/.well-known/agent-card.json";
/// Bytes of the digest in an entity tag.
const TAG_BYTES: usize = 16;

/// Returns the entity tag of a card, with its quotes.
pub fn etag(card: &Json) -> String {
    let digest = digest(&SHA256, card.text().as_bytes());
    let hex: String = digest.as_ref().iter().take(TAG_BYTES).map(|byte| format!("{byte:02x}")).collect();
    format!("\"{hex}\"")
}
