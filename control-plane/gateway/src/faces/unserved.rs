//! Responses that say that nothing was begun, and that it can be sent again.
//!
//! Keeps true: only a face marks one, by its reason, of a call that was handed to nobody and that no other gateway has;
//! nothing that a service or a plugin says does.

use http::{Extensions, HeaderName};

/// Says to Envoy that another gateway may be asked; it never gets to a client.
pub const HEADER: HeaderName = HeaderName::from_static("x-asp-unserved");

#[derive(Clone, Copy)]
struct Unserved;

/// The response is `upstream_unavailable`.
pub(super) fn mark(extensions: &mut Extensions) {
    extensions.insert(Unserved);
}

pub fn is_marked(extensions: &Extensions) -> bool {
    extensions.get::<Unserved>().is_some()
}
