//! A2A: every listed primitive is a skill of its server's agent.

pub mod card;
