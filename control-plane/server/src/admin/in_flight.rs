//! Requests in flight of each org, team and installer, and the bytes of their bodies.
//!
//! Refuses what is beyond [`MAX_REQUESTS`] and [`MAX_BODY_BYTES`] of one of them with 429; of what they read, [`MAX_READS`] are
//! answered at a time and the others wait. Keeps true: the admins of one org take neither the memory nor the connections to
//! the store from others, whatever they send at a time and however slowly they read what is answered; those who may only read take
//! no request and no memory from those who revoke and write; nothing is read of a body before its sender has proved who it is. The
//! platform's admins have no bound.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

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
use super::problem::{Code, Problem};
use crate::admin_role::{Role, Scope};

/// Requests of one org, team or installer at a time: four times the writes that may wait for their turn. Those who may only read
/// have as many.
pub const MAX_REQUESTS: usize = 64;
/// Bytes of the bodies of these requests: as many of the largest as writes may wait for their turn.
pub const MAX_BODY_BYTES: usize = 16 * MAX_BODY;
/// Reads of one org, team or installer that are answered at a time: half of the connections that a process has for reads and most
/// writes. Writes have turns of their own.
const MAX_READS: usize = 2;

/// The requests in flight of all orgs, teams and installers.
#[derive(Default)]
pub struct InFlight {
    /// An entry goes with its last request, so that there are no more than connections.
    loads: Mutex<HashMap<Scope, Load>>,
}

struct Load {
    writers: Share,
    readers: Share,
    reads: Arc<Semaphore>,
}

/// Requests in flight of those who may write, or of those who may only read.
#[derive(Default)]
struct Share {
    requests: usize,
    body_bytes: usize,
}

impl Default for Load {
    fn default() -> Load {
        let reads = Arc::new(Semaphore::new(MAX_READS));
        Load { writers: Share::default(), readers: Share::default(), reads }
    }
}

impl Load {
    fn share(&mut self, role: &Role) -> &mut Share {
        if role.may_write() { &mut self.writers } else { &mut self.readers }
    }
}

/// One request in flight, until this is dropped: until its response is sent.
struct Permit {
    in_flight: Arc<InFlight>,
    role: Role,
    /// Bytes of its body, and its turn among the reads, until its response is made.
    body_bytes: AtomicUsize,
    read: Mutex<Option<OwnedSemaphorePermit>>,
}

/// Keeps the permit of one request from the proof of its sender to the end of its response.
#[derive(Clone, Default)]
struct Slot(Arc<OnceLock<Permit>>);

impl InFlight {
    /// The permit of a request, and what reads of its scope wait for.
    fn enter(self: &Arc<Self>, role: &Role) -> Result<(Permit, Arc<Semaphore>), Problem> {
        let mut loads = self.loads.lock();
        let load = loads.entry(role.scope().clone()).or_default();
        let share = load.share(role);
        if share.requests >= MAX_REQUESTS {
            return Err(Problem::new(
                Code::TooManyRequests,
                format!("{MAX_REQUESTS} requests are not answered yet: send fewer at a time"),
            ));
        }
        share.requests += 1;
        let reads = Arc::clone(&load.reads);
        let (in_flight, role) = (Arc::clone(self), role.clone());
        Ok((Permit { in_flight, role, body_bytes: AtomicUsize::new(0), read: Mutex::default() }, reads))
    }
}

impl Permit {
    fn add_body(&self, bytes: usize) -> Result<(), Problem> {
        let mut loads = self.in_flight.loads.lock();
        let share = loads.entry(self.role.scope().clone()).or_default().share(&self.role);
        if share.body_bytes + bytes > MAX_BODY_BYTES {
            return Err(Problem::new(
                Code::TooManyRequests,
                format!(
                    "requests that are not answered yet have bodies of {MAX_BODY_BYTES} bytes together: send fewer at a time, \
                     with their Content-Length"
                ),
            ));
        }
        share.body_bytes += bytes;
        self.body_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// The response is made: it needs neither the request's body nor the store.
    fn answered(&self) {
        drop(self.read.lock().take());
        if let Some(load) = self.in_flight.loads.lock().get_mut(self.role.scope()) {
            load.share(&self.role).body_bytes -= self.body_bytes.swap(0, Ordering::Relaxed);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.answered();
        let mut loads = self.in_flight.loads.lock();
        if let Some(load) = loads.get_mut(self.role.scope()) {
            load.share(&self.role).requests -= 1;
            if load.writers.requests + load.readers.requests == 0 {
                loads.remove(self.role.scope());
            }
        }
    }
}

/// The middleware.
pub async fn track(mut request: Request, next: Next) -> Response {
    let slot = Slot::default();
    request.extensions_mut().insert(slot.clone());
    let response = next.run(request).await;
    if let Some(permit) = slot.0.get() {
        permit.answered();
    }
    // Held by the body, and so until that is sent or nobody is there to read it.
    let held = move |error: axum::Error| {
        let _slot = &slot;
        error
    };
    response.map(|body| Body::new(body.map_err(held)))
}

/// Counts a request whose sender has proved its role; returns when it may be answered.
pub(super) async fn enter(in_flight: &Arc<InFlight>, parts: &Parts, role: &Role) -> Result<(), Problem> {
    if role.is_platform() {
        return Ok(());
    }
    let internal = || Problem::new(Code::Internal, "");
    // Every route is behind the middleware.
    let Slot(slot) = parts.extensions.get::<Slot>().cloned().ok_or_else(internal)?;
    if slot.get().is_none() {
        let (permit, reads) = in_flight.enter(role)?;
        if matches!(parts.method, Method::GET | Method::HEAD) {
            // Nobody closes it.
            let read = reads.acquire_owned().await.map_err(|_| internal())?;
            *permit.read.lock() = Some(read);
        }
        // Err: counted already.
        let _ = slot.set(permit);
    }
    Ok(())
}

/// Counts the body of such a request before it is read; one without a length as the largest.
pub(super) fn add_body(request: &Request<Body>) -> Result<(), Problem> {
    let Some(permit) = request.extensions().get::<Slot>().and_then(|slot| slot.0.get()) else {
        return Ok(());
    };
    let declared = request.body().size_hint().upper().and_then(|bytes| usize::try_from(bytes).ok());
    permit.add_body(declared.map_or(MAX_BODY, |bytes| bytes.min(MAX_BODY)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(text: &str) -> Role {
        Role::parse(text).unwrap()
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
        last.answered();
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
            let request = http::Request::builder().method(method).extension(Slot::default());
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
