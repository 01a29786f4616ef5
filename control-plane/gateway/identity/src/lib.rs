//! Tokens that the gateway gets and gives: from issuers, for services and logins, and its own.
//!
//! Owns: requests to issuers with their limits and what they answered; tokens of linked accounts; the signing keys of the
//! platform's tokens. Refuses:
//! the evaluation of a caller's token, which the edge's code does.

pub mod issuers;
pub mod linked;
pub mod minting;
