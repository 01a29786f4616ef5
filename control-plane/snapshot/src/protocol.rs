//! Protocol names in metrics and audit.

use asp_proto::snapshot::Protocol;

/// Returns a protocol's name in metrics and audit.
pub const fn protocol_name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Mcp => "mcp",
        Protocol::A2a => "a2a",
        Protocol::Rest => "rest",
        Protocol::Unspecified => "none",
    }
}
