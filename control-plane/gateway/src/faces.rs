//! The protocol faces: codecs around one Call (I-2). No policy, limit, validation, ledger or audit here.

pub mod mcp;
pub mod rest;
pub mod wellknown;
