//! Limits for the concurrent requests of each org, team and installer, and for the bytes of their bodies.
//!
//! Refuses requests beyond [`MAX_REQUESTS`] and [`MAX_BODY_BYTES`] of one of them with 429. Of their reads,
//! [`MAX_READS`] run at a time and the others wait. Keeps true: the admins of one org cannot exhaust the memory or the
//! store connections that others need, however much they send and however slowly they read responses; read-only admins
//! cannot exhaust the requests and memory of those who revoke and write; no body is read before its sender is
//! authenticated. Admins of the platform have no limit.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use asp_issuers::admin_role::{AdminRole, Scope};
use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use http::Method;
use http::request::Parts;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::MAX_BODY;
use super::problem::{Code, Problem, Result};

/// Maximum number of concurrent requests of one org, team or installer: four times the writes that may be queued.
/// Read-only admins have the same number of their own.
pub const MAX_REQUESTS: usize = 64;
/// Maximum bytes of the bodies of these requests: as many of the largest as writes may be queued.
pub const MAX_BODY_BYTES: usize = 16 * MAX_BODY;
/// Maximum number of concurrent reads of one org, team or installer: half of the connections that a process has for
/// reads and most writes. Writes have queues of their own.
const MAX_READS: usize = 2;

/// Requests in flight of all orgs, teams and installers.
#[derive(Default)]
pub struct InFlight {
    /// Load by scope; an entry is removed with its last request, so that there are at most as many as connections.
    loads: Mutex<HashMap<Scope, Load>>,
}

struct Load {
    writers: LoadCounts,
    readers: LoadCounts,
    reads: Arc<Semaphore>,
}

/// Requests in flight of admins who may write, or of read-only admins.
#[derive(Default)]
struct LoadCounts {
    requests: usize,
    body_bytes: usize,
}

impl Default for Load {
    fn default() -> Load {
        let reads = Arc::new(Semaphore::new(MAX_READS));
        Load { writers: LoadCounts::default(), readers: LoadCounts::default(), reads }
    }
}

impl Load {
    fn counts(&mut self, role: &AdminRole) -> &mut LoadCounts {
        if role.may_write() { &mut self.writers } else { &mut self.readers }
    }
}

/// One request in flight, until this is dropped, when its response has been sent.
struct Permit {
    in_flight: Arc<InFlight>,
    role: AdminRole,
    /// Bytes of its body, and its permit to read, held until its response is ready.
    body_bytes: AtomicUsize,
    read: Mutex<Option<OwnedSemaphorePermit>>,
}

/// Slot for the permit of one request, from authentication to the end of its response.
#[derive(Clone, Default)]
struct PermitSlot(Arc<OnceLock<Permit>>);

impl InFlight {
    /// Returns the permit of a request, and the semaphore for reads of its scope.
    fn enter(self: &Arc<Self>, role: &AdminRole) -> Result<(Permit, Arc<Semaphore>)> {
        let mut loads = self.loads.lock();
        let load = loads.entry(role.scope().clone()).or_default();
        let counts = load.counts(role);
        if counts.requests >= MAX_REQUESTS {
            return Err(Problem::new(
                Code::TooManyRequests,
                format!("{MAX_REQUESTS} requests are not answered yet: send fewer at a time"),
            ));
        }
        counts.requests += 1;
        let reads = Arc::clone(&load.reads);
        let (in_flight, role) = (Arc::clone(self), role.clone());
        Ok((Permit { in_flight, role, body_bytes: AtomicUsize::new(0), read: Mutex::default() }, reads))
    }
}

impl Permit {
    fn add_body(&self, bytes: usize) -> Result<()> {
        let mut loads = self.in_flight.loads.lock();
        let counts = loads.entry(self.role.scope().clone()).or_default().counts(&self.role);
        if counts.body_bytes + bytes > MAX_BODY_BYTES {
            return Err(Problem::new(
                Code::TooManyRequests,
                format!(
                    "requests that are not answered yet have bodies of {MAX_BODY_BYTES} bytes together: send fewer at a time, \
                     with their Content-Length"
                ),
            ));
        }
        counts.body_bytes += bytes;
        self.body_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Releases the body and the read permit: the response is ready and needs neither the body nor the store.
    fn release_permits(&self) {
        drop(self.read.lock().take());
        if let Some(load) = self.in_flight.loads.lock().get_mut(self.role.scope()) {
            load.counts(&self.role).body_bytes -= self.body_bytes.swap(0, Ordering::Relaxed);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.release_permits();
        let mut loads = self.in_flight.loads.lock();
        if let Some(load) = loads.get_mut(self.role.scope()) {
            load.counts(&self.role).requests -= 1;
            if load.writers.requests + load.readers.requests == 0 {
                loads.remove(self.role.scope());
            }
        }
    }
}

/// Middleware that holds the permit of a request until its response is sent.
pub async fn track(mut request: Request, next: Next) -> Response {
    let slot = PermitSlot::default();
    request.extensions_mut().insert(slot.clone());
    let response = next.run(request).await;
    if let Some(permit) = slot.0.get() {
        permit.release_permits();
    }
    // The body holds the slot until it is sent or dropped.
    let held = move |error: axum::Error| {
        let _slot = &slot;
        error
    };
    response.map(|body| Body::new(body.map_err(held)))
}

/// Counts a request of an authenticated sender; returns once it may run.
pub(super) async fn enter(in_flight: &Arc<InFlight>, parts: &Parts, role: &AdminRole) -> Result<()> {
    if role.is_platform() {
        return Ok(());
    }
    let internal = || Problem::new(Code::Internal, "");
    // Every route is behind the middleware.
    let PermitSlot(slot) = parts.extensions.get::<PermitSlot>().cloned().ok_or_else(internal)?;
    if slot.get().is_none() {
        let (permit, reads) = in_flight.enter(role)?;
        if matches!(parts.method, Method::GET | Method::HEAD) {
            // The semaphore is never closed.
            let read = reads.acquire_owned().await.map_err(|_| internal())?;
            *permit.read.lock() = Some(read);
        }
        // Err: counted already.
        let _ = slot.set(permit);
    }
    Ok(())
}

/// Counts the body of such a request before it is read; without a length it counts as the maximum.
pub(super) fn add_body(request: &Request<Body>) -> Result<()> {
    let Some(permit) = request.extensions().get::<PermitSlot>().and_then(|slot| slot.0.get()) else {
        return Ok(());
    };
    let declared = request.body().size_hint().upper().and_then(|bytes| usize::try_from(bytes).ok());
    permit.add_body(declared.map_or(MAX_BODY, |bytes| bytes.min(MAX_BODY)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(text: &str) -> AdminRole {
        AdminRole::parse(text).unwrap()
    }

    #[test]
    fn requests_and_bodies_of_an_org_are_bounded_and_take_nothing_from_others() {
        let in_flight: Arc<InFlight> = Arc::default();
        let acme = role("org:acme");
        let enter = |_| in_flight.enter(&acme).ok().unwrap().0;
        let mut held: Vec<Permit> = (0..MAX_REQUESTS).map(enter).collect();
        assert_eq!(in_flight.enter(&acme).err().unwrap().code(), Code::TooManyRequests);
        for other in ["org:other", "server:acme", "installer", "org:acme:read"] {
            assert!(in_flight.enter(&role(other)).is_ok(), "{other}");
        }
        for permit in held.iter().take(16) {
            permit.add_body(MAX_BODY).ok().unwrap();
        }
        let last = held.pop().unwrap();
        assert_eq!(last.add_body(1).err().unwrap().code(), Code::TooManyRequests);
        held.remove(0);
        assert!(last.add_body(MAX_BODY).is_ok(), "a body goes with its request");
        last.release_permits();
        assert!(held[0].add_body(MAX_BODY).is_ok(), "what is answered needs no body");
        assert!(in_flight.enter(&acme).is_ok(), "of two requests less");
        drop((last, held));
        assert!(in_flight.loads.lock().is_empty());
    }

    #[test]
    fn those_who_may_only_read_take_no_request_and_no_body_from_those_who_write() {
        let in_flight: Arc<InFlight> = Arc::default();
        let (acme, reader) = (role("org:acme"), role("org:acme:read"));
        let enter = |_| in_flight.enter(&reader).ok().unwrap().0;
        let held: Vec<Permit> = (0..MAX_REQUESTS).map(enter).collect();
        assert!(in_flight.enter(&reader).is_err());
        for permit in held.iter().take(MAX_BODY_BYTES / MAX_BODY) {
            permit.add_body(MAX_BODY).ok().unwrap();
        }
        let revokes = in_flight.enter(&acme).ok().unwrap().0;
        assert!(revokes.add_body(MAX_BODY).is_ok());
        drop(held);
        assert!(!in_flight.loads.lock().is_empty());
        drop(revokes);
        assert!(in_flight.loads.lock().is_empty());
    }

    #[tokio::test]
    async fn reads_of_an_org_wait_for_each_other_and_nothing_else_does() {
        let in_flight: Arc<InFlight> = Arc::default();
        let request = |method: Method| {
            let request = http::Request::builder().method(method).extension(PermitSlot::default());
            request.body(()).unwrap().into_parts().0
        };
        let acme = role("org:acme");
        let mut reads: Vec<Parts> = (0..=MAX_READS).map(|_| request(Method::GET)).collect();
        let last = reads.pop().unwrap();
        for read in &reads {
            enter(&in_flight, read, &acme).await.ok().unwrap();
        }
        let mut waiting = Box::pin(enter(&in_flight, &last, &acme));
        assert!(futures::poll!(&mut waiting).is_pending());
        assert!(enter(&in_flight, &request(Method::PUT), &acme).await.is_ok(), "a write");
        assert!(enter(&in_flight, &request(Method::GET), &role("org:other")).await.is_ok(), "another org");
        reads.pop();
        assert!(waiting.await.is_ok());
    }

    #[tokio::test]
    async fn the_platform_has_no_bound() {
        let in_flight: Arc<InFlight> = Arc::default();
        let parts = http::Request::new(()).into_parts().0;
        for _ in 0..=MAX_REQUESTS {
            assert!(enter(&in_flight, &parts, &role("platform")).await.is_ok());
        }
        assert!(in_flight.loads.lock().is_empty());
    }
}
