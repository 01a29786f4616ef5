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

/// In this time an admin may fill so many rows, and all admins together so many.
const WINDOW: Duration = Duration::from_secs(60);
const OF_ONE: u32 = 10;
const OF_ALL: u32 = 60;
/// Admins that are told apart in one window; the others share the bound of all.
const MAX_ACTORS: usize = 1_000;
/// Longest path in a row, in bytes.
const MAX_PATH: usize = 512;
/// They change nothing, whatever their method.
const QUESTIONS: [&str; 3] = ["/api/registry/validate", "/api/registry/compile", "/api/policy/explain"];

/// How many refusals were audited lately.
#[derive(Default)]
pub struct Refusals {
    window: Mutex<Option<Window>>,
}

struct Window {
    since: Instant,
    all: u32,
    by_actor: HashMap<String, u32>,
    left_out: u64,
}

impl Refusals {
    /// Whether another row may be written for `actor`; then how many were left out before it.
    fn admit(&self, actor: &str, now: Instant) -> Option<u64> {
        let mut slot = self.window.lock();
        let left_out = slot.as_ref().map_or(0, |window| window.left_out);
        let fresh = || Window { since: now, all: 0, by_actor: HashMap::new(), left_out };
        let window = slot.get_or_insert_with(fresh);
        if now.saturating_duration_since(window.since) >= WINDOW {
            *window = fresh();
        }
        let own = window.by_actor.get(actor).copied().unwrap_or_default();
        if window.all >= OF_ALL || own >= OF_ONE {
            window.left_out += 1;
            return None;
        }
        if own > 0 || window.by_actor.len() < MAX_ACTORS {
            window.by_actor.insert(actor.to_owned(), own + 1);
        }
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
    let Some(left_out) = state.refusals.admit(&actor, Instant::now()) else {
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
        // What an org's admin tried is that org's to see; what it tried at another is none of the other's.
        org: admin.role.org().unwrap_or_default(),
        detail: &detail,
    };
    let change = state.change(admin, Precondition::None);
    if let Err(error) = state.store.note(&change, note).await {
        tracing::error!(%actor, path, what, %error, "a refused write could not be audited");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_refusals_writes_few_rows_and_says_how_many_it_left_out() {
        let refusals = Refusals::default();
        let start = Instant::now();
        let written = (0..1_000).filter(|_| refusals.admit("ops@acme", start).is_some()).count();
        assert_eq!(written, OF_ONE as usize);
        assert_eq!(refusals.admit("ops@globex", start), Some(990), "another admin's are written");
        let of_all = (0..10_000).filter(|n| refusals.admit(&format!("a{n}@x"), start).is_some()).count();
        assert_eq!(of_all, (OF_ALL - OF_ONE - 1) as usize);
        assert!(refusals.window.lock().as_ref().unwrap().by_actor.len() <= MAX_ACTORS);
        let next = start + WINDOW;
        assert!(refusals.admit("ops@acme", next).is_some_and(|left_out| left_out > 9_000));
        assert_eq!(refusals.admit("ops@acme", next), Some(0));
    }

    #[test]
    fn a_question_is_no_write_and_a_slip_of_form_is_not_audited() {
        assert!(is_write(&Method::DELETE, "/api/policy/orgs/acme/bindings"));
        assert!(!is_write(&Method::GET, "/api/audit") && !is_write(&Method::POST, "/api/policy/explain"));
        assert!(is_telling(StatusCode::FORBIDDEN) && !is_telling(StatusCode::BAD_REQUEST));
        assert!(!is_telling(StatusCode::UNAUTHORIZED) && !is_telling(StatusCode::OK));
    }
}
