//! The command line of `asp kafka`.

use clap::{Args, Subcommand};

use super::JsonArgs;

#[derive(Clone, Debug, Subcommand)]
pub enum KafkaCommand {
    /// Shows whether the topic is read, and how many of its messages revoked something
    Status(JsonArgs),
    /// Lists messages of the topic that revoked nothing, newest first
    Parked(KafkaParkedArgs),
    /// Deletes a message that revoked nothing, once it was dealt with
    Drop(KafkaDropArgs),
}

#[derive(Clone, Debug, Args)]
pub struct KafkaParkedArgs {
    /// Number of messages
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=500))]
    pub limit: u32,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct KafkaDropArgs {
    /// Topic, partition and offset, as `asp kafka parked` shows them
    #[arg(value_name = "ID")]
    pub id: String,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}
