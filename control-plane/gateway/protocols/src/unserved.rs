//! Responses that report that nothing was begun and that the request can be retried.
//!
//! Keeps true: only a protocol marks a response, by the reason of a call that was passed to no backend and that no
//! other gateway has; nothing that a service or a plugin returns can mark one.

use http::{Extensions, HeaderName};

/// Tells Envoy that another gateway may be tried; it is never sent to a client.
pub const HEADER: HeaderName = HeaderName::from_static("x-asp-unserved");

#[derive(Clone, Copy)]
struct UnservedMark;

/// Marks the response as `upstream_unavailable` and retryable.
pub(super) fn mark(extensions: &mut Extensions) {
    extensions.insert(UnservedMark);
}

pub fn is_marked(extensions: &Extensions) -> bool {
    extensions.get::<UnservedMark>().is_some()
}
