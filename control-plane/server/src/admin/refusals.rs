//! The audit of refused writes: the actor, the attempt, and the reason for the refusal.
//!
//! Owns the choice of audited refusals (an authenticated admin was not allowed, or the state did not permit it) and
//! their rate. Keeps true: a flood of refusals writes a bounded number of rows; the next row has the number of those
//! left out.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use asp_issuers::admin_role::Scope;
use asp_platform::quota::Counts;
use asp_store::control::{Note, Precondition};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{Method, StatusCode};
use parking_lot::Mutex;

use super::AdminState;
use super::auth::Admin;
use super::problem::Code;

/// Window over which rows are counted.
const WINDOW: Duration = Duration::from_secs(60);
/// Maximum number of rows of one admin in a window.
const OF_ONE: usize = 10;
/// Maximum number of rows of all admins of one scope in a window.
const OF_SCOPE: usize = 60;
/// Maximum number of scopes with rows in one window; refusals of further ones are not audited, except the platform's.
const MAX_SCOPES: usize = 1_000;
/// Maximum length of a path in a row, in bytes.
const MAX_PATH: usize = 512;
/// Operations that change nothing in spite of their method.
const QUESTIONS: [&str; 4] =
    ["/api/registry/validate", "/api/registry/compile", "/api/policy/explain", "/api/policy/preview"];

/// Recently audited refusals by scope: a scope must neither learn of another's refusals nor crowd them out.
#[derive(Default)]
pub struct Refusals {
    /// Windows by scope: at most [`MAX_SCOPES`], plus one for the platform.
    windows: Mutex<HashMap<Scope, Window>>,
}

struct Window {
    since: Instant,
    all: usize,
    /// Rows by admin; at most [`OF_SCOPE`].
    by_actor: Counts<String>,
    left_out: u64,
}

impl Window {
    fn new(now: Instant, left_out: u64) -> Window {
        Window { since: now, all: 0, by_actor: Counts::default(), left_out }
    }

    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= WINDOW
    }
}

impl Refusals {
    /// Admits another row for `actor` of a scope; returns the number of rows of that scope that were left out before
    /// it.
    fn admit(&self, scope: &Scope, actor: &str, now: Instant) -> Option<u64> {
        let mut windows = self.windows.lock();
        let needs_place = *scope != Scope::Platform && !windows.contains_key(scope);
        if needs_place && windows.len() >= MAX_SCOPES {
            windows.retain(|_, window| !window.is_over(now));
            if windows.len() >= MAX_SCOPES {
                return None;
            }
        }
        let window = windows.entry(scope.clone()).or_insert_with(|| Window::new(now, 0));
        if window.is_over(now) {
            *window = Window::new(now, window.left_out);
        }
        if window.all >= OF_SCOPE || !window.by_actor.add_within(OF_ONE, actor.to_owned(), 1) {
            window.left_out += 1;
            return None;
        }
        window.all += 1;
        Some(std::mem::take(&mut window.left_out))
    }
}

/// Middleware that audits refused writes.
pub async fn audit(State(state): State<Arc<AdminState>>, request: Request, next: Next) -> Response {
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    if !is_write(&method, &path) {
        return next.run(request).await;
    }
    let headers = request.headers().clone();
    let response = next.run(request).await;
    if is_worth_auditing(response.status()) {
        // A sender that is not authenticated got 401, which is not audited.
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

/// Whether a refusal is worth auditing: neither a malformed request (400, 413, 415) nor a fault of the server.
fn is_worth_auditing(status: StatusCode) -> bool {
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
    // An org sees the attempts of its own admins; another org does not see attempts against it.
    let org = admin.role.org().unwrap_or_default();
    let Some(left_out) = state.refusals.admit(admin.role.scope(), &actor, Instant::now()) else {
        tracing::debug!(%actor, path, what, "a refused write is not audited; there were too many within a minute");
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
            "a refused write could not be audited; check the database and its disk"
        );
    }
}

#[cfg(test)]
mod tests {
    use asp_issuers::admin_role::AdminRole;

    use super::*;

    fn scope(role: &str) -> Scope {
        AdminRole::parse(role).unwrap().scope().clone()
    }

    #[test]
    fn a_flood_of_refusals_writes_few_rows_and_says_how_many_it_left_out() {
        let refusals = Refusals::default();
        let start = Instant::now();
        let own = scope("org:acme");
        let acme = |actor: &str, now| refusals.admit(&own, actor, now);
        let written = (0..1_000).filter(|_| acme("ops@acme", start).is_some()).count();
        assert_eq!(written, OF_ONE);
        assert_eq!(acme("dev@acme", start), Some(990), "another admin's are written");
        let of_all = (0..10_000).filter(|n| acme(&format!("a{n}@acme"), start).is_some()).count();
        assert_eq!(of_all, OF_SCOPE - OF_ONE - 1);
        let next = start + WINDOW;
        assert!(acme("ops@acme", next).is_some_and(|left_out| left_out > 9_000));
        assert_eq!(acme("ops@acme", next), Some(0));
    }

    #[test]
    fn refusals_of_one_scope_neither_drown_those_of_another_nor_are_told_to_it() {
        let refusals = Refusals::default();
        let start = Instant::now();
        for flooding in ["org:acme", "installer"] {
            for number in 0..1_000 {
                refusals.admit(&scope(flooding), &format!("a{number}"), start);
            }
        }
        for other in ["org:globex", "server:acme", "platform"] {
            assert_eq!(refusals.admit(&scope(other), "ops", start), Some(0), "{other}");
        }
        assert_eq!(refusals.admit(&scope("org:acme:read"), "reader", start), None, "the same org");
    }

    #[test]
    fn the_scopes_of_a_window_are_bounded_and_come_back_after_it() {
        let refusals = Refusals::default();
        let start = Instant::now();
        let admit = |org: &str, now| refusals.admit(&scope(&format!("org:{org}")), "ops", now);
        let written = (0..MAX_SCOPES + 10).filter(|n| admit(&n.to_string(), start).is_some());
        assert_eq!(written.count(), MAX_SCOPES);
        assert_eq!(refusals.admit(&scope("platform"), "ops", start), Some(0), "it always has a place");
        assert_eq!(admit("later", start), None);
        assert_eq!(admit("late", start + WINDOW), Some(0));
    }

    #[test]
    fn a_question_is_no_write_and_a_slip_of_form_is_not_audited() {
        assert!(is_write(&Method::DELETE, "/api/policy/orgs/acme/bindings"));
        assert!(!is_write(&Method::GET, "/api/audit") && !is_write(&Method::POST, "/api/policy/explain"));
        assert!(is_worth_auditing(StatusCode::FORBIDDEN) && !is_worth_auditing(StatusCode::BAD_REQUEST));
        assert!(!is_worth_auditing(StatusCode::UNAUTHORIZED) && !is_worth_auditing(StatusCode::OK));
    }
}
