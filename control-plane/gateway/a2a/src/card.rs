//! Agent cards: their canonical form and their signatures.
//!
//! Owns: the projection of a card to the schema of 1.0 (`schema`), canonical JSON ([`canonical`]), signatures ([`sign`],
//! [`verify`]), and what a card says about its agent ([`AgentCard`]). Refuses: to write cards, which the registry compiles. Keeps true: a verifier by the specification and one of the
//! SDKs, which first drops everything empty, both accept what is signed here.

mod agent;
mod canonical;
mod schema;
mod sign;

pub use agent::{AgentBinding, AgentCard, AgentInterface, AgentSkill, TEXT_ARGUMENT};
pub use canonical::{NotCanonical, canonical};
pub use sign::{Algorithm, CardKey, CardSignature, CardSigner, SignFault, VerifyFault, sign, verify};

/// Path of a card below an agent's base path.
pub const PATH: &str = "/.well-known/agent-card.json";
/// Path of a card in versions before 0.3.
pub const FORMER_PATH: &str = "/.well-known/agent.json";
