//! The audit of refused writes: who tried what, and why it was not done.
//!
//! Owns the choice of refusals that are audited (a proved admin was not let, or the state did not allow it) and their
//! rate. Keeps true: a flood of refusals writes a bounded number of rows; what was left out is counted in the next one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use asp_store::control::{Note, Precondition};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{Method, StatusCode};
use parking_lot::Mutex;

use super::AdminState;
use super::auth::Admin;
use super::problem::Code;
use super::turns::key_of;

/// Time in which one admin may fill [`OF_ONE`] rows, and all admins of an org, of a server or of the platform [`OF_ORG`].
const WINDOW: Duration = Duration::from_secs(60);
const OF_ONE: u32 = 10;
const OF_ORG: u32 = 60;
/// Orgs whose admins are refused in one window; those of more are not audited.
const MAX_ORGS: usize = 1_000;
/// Longest path in a row, in bytes.
const MAX_PATH: usize = 512;
/// They change nothing, whatever their method.
const QUESTIONS: [&str; 3] = ["/api/registry/validate", "/api/registry/compile", "/api/policy/explain"];

/// Number of refusals that were audited lately, for each org and each server's team by itself: how often another one is refused is
/// not its to know, nor to drown.
#[derive(Default)]
pub struct Refusals {
    /// Bounded by [`MAX_ORGS`].
    windows: Mutex<HashMap<String, Window>>,
}

struct Window {
    since: Instant,
    all: u32,
    /// At most [`OF_ORG`] of them.
    by_actor: HashMap<String, u32>,
    left_out: u64,
}

impl Window {
    fn new(now: Instant, left_out: u64) -> Window {
        Window { since: now, all: 0, by_actor: HashMap::new(), left_out }
    }

    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= WINDOW
    }
}

impl Refusals {
    /// Whether another row may be written for `actor` of an org, or a team ("" for the platform); then how many of that org
    /// were left out before it.
    fn admit(&self, org: &str, actor: &str, now: Instant) -> Option<u64> {
        let mut windows = self.windows.lock();
        if windows.len() >= MAX_ORGS && !windows.contains_key(org) {
            windows.retain(|_, window| !window.is_over(now));
            if windows.len() >= MAX_ORGS {
                return None;
            }
        }
        let window = windows.entry(org.to_owned()).or_insert_with(|| Window::new(now, 0));
        if window.is_over(now) {
            *window = Window::new(now, window.left_out);
        }
        let own = window.by_actor.get(actor).copied().unwrap_or_default();
        if window.all >= OF_ORG || own >= OF_ONE {
            window.left_out += 1;
            return None;
        }
        window.by_actor.insert(actor.to_owned(), own + 1);
        window.all += 1;
        Some(std::mem::take(&mut window.left_out))
    }
}

/// The middleware.
pub async fn audit(State(state): State<Arc<AdminState>>, request: Request, next: Next) -> Response {
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    if !is_write(&method, &path) {
        return next.run(request).await;
    }
    let headers = request.headers().clone();
    let response = next.run(request).await;
    if is_telling(response.status()) {
        // Whoever proved to be nobody was refused with 401 and is not here.
        if let Ok(admin) = Admin::of(&headers, &state).await {
            let code = response.extensions().get::<Code>().map_or("unknown", |code| code.as_str());
            record(&state, &admin, &path, &format!("{method} {} {code}", response.status().as_u16())).await;
        }
    }
    response
}

fn is_write(method: &Method, path: &str) -> bool {
    matches!(*method, Method::PUT | Method::POST | Method::DELETE) && !QUESTIONS.contains(&path)
}

/// Not a slip of form (400, 413, 415), and not a fault of ours.
fn is_telling(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::FORBIDDEN
            | StatusCode::NOT_FOUND
            | StatusCode::CONFLICT
            | StatusCode::PRECONDITION_FAILED
            | StatusCode::UNPROCESSABLE_ENTITY
    )
}

async fn record(state: &AdminState, admin: &Admin, path: &str, what: &str) {
    let actor = admin.actor();
    // What an org's admin tried is that org's to see; what it tried at another is none of the other's.
    let org = admin.role.org().unwrap_or_default();
    let Some(left_out) = state.refusals.admit(&key_of(&admin.role), &actor, Instant::now()) else {
        tracing::debug!(%actor, path, what, "a refused write is not audited: too many in a minute");
        return;
    };
    let detail = match left_out {
        0 => what.to_owned(),
        more => format!("{what} ({more} others were left out before)"),
    };
    let note = Note {
        action: "refused",
        resource: path.get(..path.floor_char_boundary(MAX_PATH)).unwrap_or_default(),
        org,
        detail: &detail,
    };
    let change = state.change(admin, Precondition::None);
    if let Err(error) = state.store.note(&change, note).await {
        tracing::error!(
            %actor, path, what, %error,
            "a refused write could not be audited; it stays refused. Check the database and its disk"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin_role::Role;

    #[test]
    fn a_flood_of_refusals_writes_few_rows_and_says_how_many_it_left_out() {
        let refusals = Refusals::default();
        let start = Instant::now();
        let acme = |actor: &str, now| refusals.admit("acme", actor, now);
        let written = (0..1_000).filter(|_| acme("ops@acme", start).is_some()).count();
        assert_eq!(written, OF_ONE as usize);
        assert_eq!(acme("dev@acme", start), Some(990), "another admin's are written");
        let of_all = (0..10_000).filter(|n| acme(&format!("a{n}@acme"), start).is_some()).count();
        assert_eq!(of_all, (OF_ORG - OF_ONE - 1) as usize);
        let next = start + WINDOW;
        assert!(acme("ops@acme", next).is_some_and(|left_out| left_out > 9_000));
        assert_eq!(acme("ops@acme", next), Some(0));
    }

    #[test]
    fn one_orgs_refusals_neither_drown_another_ones_nor_are_told_to_it() {
        let refusals = Refusals::default();
        let start = Instant::now();
        for number in 0..1_000 {
            refusals.admit("acme", &format!("a{number}@acme"), start);
        }
        assert_eq!(refusals.admit("globex", "ops@globex", start), Some(0));
        assert_eq!(refusals.admit("", "ops@platform", start), Some(0));
        let key = |role: &str| key_of(&Role::parse(role).unwrap());
        assert_eq!([key("platform"), key("org:acme:read"), key("server:acme")], ["", "acme", "\0acme"]);
    }

    #[test]
    fn the_orgs_of_a_window_are_bounded_and_come_back_after_it() {
        let refusals = Refusals::default();
        let start = Instant::now();
        let written = (0..MAX_ORGS + 10).filter(|n| refusals.admit(&n.to_string(), "ops", start).is_some());
        assert_eq!(written.count(), MAX_ORGS);
        assert_eq!(refusals.admit("late", "ops", start + WINDOW), Some(0));
    }

    #[test]
    fn a_question_is_no_write_and_a_slip_of_form_is_not_audited() {
        assert!(is_write(&Method::DELETE, "/api/policy/orgs/acme/bindings"));
        assert!(!is_write(&Method::GET, "/api/audit") && !is_write(&Method::POST, "/api/policy/explain"));
        assert!(is_telling(StatusCode::FORBIDDEN) && !is_telling(StatusCode::BAD_REQUEST));
        assert!(!is_telling(StatusCode::UNAUTHORIZED) && !is_telling(StatusCode::OK));
    }
}
