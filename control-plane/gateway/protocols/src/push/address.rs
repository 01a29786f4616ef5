//! Addresses of receivers, beyond what every address that a caller names has to hold (`asp_outbound`).

use asp_outbound::{Destination, OutboundError};

/// Ports of services that read lines of text, which a request could fill with commands: SMTP and Redis.
const REFUSED_PORTS: [u16; 4] = [25, 465, 587, 6379];

/// Refuses what readers of URLs take for different hosts.
pub(crate) fn check_text(url: &str) -> Result<(), OutboundError> {
    let is_ambiguous = |char: char| matches!(char, '\\' | '#') || char.is_whitespace() || char.is_control();
    if url.contains(is_ambiguous) { Err(OutboundError::Url) } else { Ok(()) }
}

/// Refuses what is not HTTP, and ports of services that could take a request for theirs.
pub(crate) fn check_target(destination: &Destination<'_>) -> Result<(), OutboundError> {
    let url = &destination.url;
    let is_web = matches!(url.scheme(), "http" | "https");
    let is_refused = url.port().is_some_and(|port| REFUSED_PORTS.contains(&port));
    if is_web && !is_refused { Ok(()) } else { Err(OutboundError::Denied) }
}
