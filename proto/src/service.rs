//! The service that runs the calls of a primitive.

use crate::snapshot::Primitive;
use crate::snapshot::runtime::Mode;

impl Primitive {
    /// Returns the URL, or URL template, of the service; `None` for plugins and what the platform runs itself.
    pub fn service_url(&self) -> Option<&str> {
        match self.runtime.as_ref()?.mode.as_ref()? {
            Mode::ProxyHttp(service) => Some(&service.url),
            Mode::ProxyMcp(service) => Some(&service.url),
            Mode::ProxyCalls(service) => Some(&service.url),
            Mode::ProxyA2a(service) => Some(&service.url),
            Mode::ProxyOpenai(service) => Some(&service.url),
            Mode::Plugin(_) | Mode::McpStdio(_) | Mode::Builtin(_) | Mode::Static(_) | Mode::Primitive(_) => {
                None
            }
        }
    }
}
