//! Callers whose org is at home in another region: their requests are forwarded there, or refused.
//!
//! Keeps true: a request is forwarded to another region once, and with no result of this evaluation.

use super::Evaluation;
use crate::caller::Caller;
use crate::headers::Headers;
use crate::reason::Reason;
use crate::region::{self, OrgHome};
use crate::reply::{ErrorFormat, Reply};
use crate::verdict::{EdgeRole, Forward, RequestFacts, Verdict};

impl Evaluation<'_> {
    /// Returns the cluster of the home region if the caller's org is at home elsewhere. A gateway cannot forward the
    /// request and refuses it, as does an edge that received it from another region by mistake.
    pub(super) fn home_cluster(
        &self,
        headers: &Headers<'_>,
        errors: &ErrorFormat,
        admitted: &RequestFacts,
    ) -> Result<Option<&OrgHome>, Reply> {
        let Some(home) = self.foreign_home(admitted.caller.as_deref()) else { return Ok(None) };
        let may_pass_on = self.edge.role == EdgeRole::Filter && headers.home_region.is_none();
        match home {
            OrgHome::There { .. } if may_pass_on => Ok(Some(home)),
            _ => Err(refuse_foreign_org(home, errors)),
        }
    }

    pub(super) fn foreign_home(&self, caller: Option<&Caller>) -> Option<&OrgHome> {
        caller.and_then(|caller| self.snapshot.homes().foreign_home(&caller.org))
    }
}

/// Forwards to another region, which evaluates the request as if it had arrived there first: it gets no results of this
/// evaluation.
pub(super) fn forward_to_home(headers: &Headers<'_>, admitted: RequestFacts, home: &OrgHome) -> Verdict {
    let set = match home {
        OrgHome::There { region, cluster } => {
            vec![(region::HEADER, cluster.to_string()), (region::HOME_HEADER, region.to_string())]
        }
        OrgHome::Here | OrgHome::Unknown { .. } => Vec::new(),
    };
    Verdict::Forward(Box::new(Forward {
        remove: headers.internal.clone(),
        clear_route: !set.is_empty(),
        set,
        admitted,
    }))
}

/// Refuses a request whose org is at home elsewhere.
pub(super) fn refuse_foreign_org(home: &OrgHome, errors: &ErrorFormat) -> Reply {
    match home {
        OrgHome::There { region, .. } => {
            errors.refuse_with(Reason::WrongRegion, region::HOME_HEADER, region.to_string())
        }
        OrgHome::Unknown { region } => {
            errors.refuse_with(Reason::UnknownRegion, region::HOME_HEADER, region.to_string())
        }
        OrgHome::Here => errors.refuse(Reason::Internal),
    }
}
