//! Tokens of linked accounts for a call, and the question that sends its caller to the linking page.
//!
//! Keeps true: a caller is asked before anything of the call is sent, or after its service certainly did nothing; the link
//! itself ends the wait, whichever gateway stored it; a client that cannot send its user to a page gets the address in an error.

use std::sync::Arc;

use asp_call::call::Call;
use asp_call::call::outcome::Refusal;
use asp_call::call::page::Visit;
use asp_call::call::question::{Answer, Ask, Question, input_timeout, put, take_back};
use asp_call::call::terms::runtime_bound;
use asp_identity::linked::{LinkReason, LinkRequest, LinkedTokens, NoLink};
use asp_platform::secret::Secret;
use asp_proto::snapshot::{LinkedToken, RiskClass};
use reqwest::Url;
use tokio::time::Instant;

use super::auth_fault::AuthFault;

/// Start of the ids of questions for a link.
const QUESTION: &str = "asp.link.";

/// Returns the request of a call for a token to send to `url`.
fn request<'a>(call: &'a Call, wanted: &'a LinkedToken, url: &'a Url) -> LinkRequest<'a> {
    LinkRequest {
        caller: &call.caller,
        wanted,
        server: &call.server.message.name,
        primitive: &call.entry.primitive.id,
        url,
        call: call.id.into_bytes(),
        // Links that outlive the session are for primitives of low risk alone (docs/linked-accounts.md).
        within: (call.entry.primitive.risk_class() != RiskClass::Low).then_some(call.session.as_str()),
    }
}

/// Returns the token of the caller's account; does not ask for one.
pub(super) async fn token(
    links: Option<&Arc<LinkedTokens>>,
    call: &Call,
    (wanted, url): (&LinkedToken, &Url),
) -> Result<Secret, AuthFault> {
    let links = links.ok_or_else(|| fault(call, &NoLink::NotHere))?;
    links.token(&request(call, wanted, url)).await.map_err(|no_link| fault(call, &no_link))
}

/// Returns the token of the caller's account, and asks the caller to link one if there is none. The spec's runtime counts from
/// then on.
pub(super) async fn token_or_ask(
    links: Option<&Arc<LinkedTokens>>,
    call: &Call,
    wanted: (&LinkedToken, &Url),
) -> Result<Secret, AuthFault> {
    let token = find_or_ask(links, call, wanted).await?;
    let longest = runtime_bound(&call.entry.primitive);
    if call.deadline() > call.runs_since() + longest {
        call.runs_from_now(longest);
    }
    Ok(token)
}

async fn find_or_ask(
    links: Option<&Arc<LinkedTokens>>,
    call: &Call,
    (wanted, url): (&LinkedToken, &Url),
) -> Result<Secret, AuthFault> {
    let links = links.ok_or_else(|| fault(call, &NoLink::NotHere))?;
    let request = request(call, wanted, url);
    let why = match links.token(&request).await {
        Err(NoLink::Missing(why)) => why,
        found => return found.map_err(|no_link| fault(call, &no_link)),
    };
    if why == LinkReason::Unreadable {
        tracing::warn!(
            call = %call.id, provider = wanted.provider,
            "tokens of a linked account do not open and its user is asked to link it again; restore the key of the vault if it was lost"
        );
    }
    let lasting = |refusal| AuthFault { refusal, passes: false };
    let Some(page) = links.page(&request) else {
        return Err(lasting(Refusal::Internal("the address of a linking page is too long".into())));
    };
    let title = links.provider(&wanted.provider).await;
    let title = title.map(|provider| provider.document.title.clone()).map_err(|no| fault(call, &no))?;
    let message = message(call, &title, why);
    let id = format!("{QUESTION}{:08x}", rand::random::<u32>());
    if !call.abilities().pages {
        let pages = vec![Visit { id, message, url: page }];
        return Err(lasting(Refusal::PagesFirst { pages }));
    }
    let visit = Visit { id: id.clone(), message: message.clone(), url: page.clone() };
    let question = Question { id, ask: Ask::Page { message, url: page } };
    let asked = ask(links, call, &request, question).await;
    asked.map_err(|fault| match fault.refusal {
        // The user may still link the account and call again.
        Refusal::InputExpired | Refusal::Deadline => lasting(Refusal::PagesFirst { pages: vec![visit] }),
        _ => fault,
    })
}

/// Asks the caller to visit the page and waits for the link.
async fn ask(
    links: &Arc<LinkedTokens>,
    call: &Call,
    request: &LinkRequest<'_>,
    question: Question,
) -> Result<Secret, AuthFault> {
    let lasting = |refusal| AuthFault { refusal, passes: false };
    let id = question.id.clone();
    let until = Instant::now() + input_timeout(&call.entry.primitive);
    let pending = put(call, question).map_err(lasting)?;
    let linking = links.wait_for_token(request);
    tokio::pin!(linking);
    let answered = tokio::select! {
        linked = &mut linking => {
            take_back(call, &id);
            return linked.map_err(|no_link| fault(call, &no_link));
        }
        answered = pending.answered(call) => answered.map_err(lasting)?,
    };
    if !matches!(answered, Answer::Accepted(_)) {
        return Err(lasting(Refusal::Declined("the account that this call needs was not linked".into())));
    }
    // The user agreed to visit the page, and may still be there.
    tokio::select! {
        linked = &mut linking => linked.map_err(|no_link| fault(call, &no_link)),
        () = tokio::time::sleep_until(until) => Err(lasting(Refusal::InputExpired)),
        () = tokio::time::sleep_until(call.deadline()) => Err(lasting(Refusal::Deadline)),
        () = call.cancelled() => Err(lasting(Refusal::Cancelled)),
    }
}

fn message(call: &Call, title: &str, why: LinkReason) -> String {
    let name = match call.entry.primitive.title.as_str() {
        "" => call.entry.primitive.id.as_str(),
        title => title,
    };
    let reason = match why {
        LinkReason::Never => "",
        LinkReason::Rejected => " Its former link is no longer accepted.",
        LinkReason::Unreadable => " Its former link cannot be read any more.",
        LinkReason::Scopes => " It needs more rights than the present link has.",
    };
    format!("Link your {title} account to use “{name}”.{reason}")
}

fn fault(call: &Call, no_link: &NoLink) -> AuthFault {
    call.note_failure_cause(no_link);
    let declined = |why: &str| Refusal::Declined(why.to_owned());
    let passes = matches!(no_link, NoLink::Unavailable(_) | NoLink::NotStored(_));
    let refusal = match no_link {
        NoLink::NotHere | NoLink::UnknownProvider(_) => {
            declined("the provider of the account that this needs is not set up here")
        }
        NoLink::NotServed { .. } | NoLink::Origin { .. } => declined(
            "the platform's operator does not allow this primitive an account of its users at that service",
        ),
        NoLink::Org { .. } => declined(
            "the platform's operator does not allow users of your organization to link accounts there",
        ),
        NoLink::NoPerson => declined("this needs a linked account, and only persons have these"),
        NoLink::Missing(_) => declined("the account that this call needs is not linked"),
        NoLink::Vault(_) => {
            Refusal::Upstream("linked accounts cannot be opened at the moment: try again later".into())
        }
        NoLink::Unavailable(_) | NoLink::NotStored(_) => Refusal::Upstream(
            "the token of the linked account is not available at the moment: try again later".into(),
        ),
    };
    AuthFault { refusal, passes }
}
