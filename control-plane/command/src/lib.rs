//! The parts that commands of `asp` in several crates use: environment, failures, output, files, children, HTTP clients.
//!
//! Refuses what one command alone needs, and knows neither settings nor arguments.

pub mod environment;
pub mod failure;
pub mod http_client;
pub mod parent_death;
pub mod print;
pub mod state_dir;
