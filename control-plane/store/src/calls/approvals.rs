//! The [`ApprovalStore`] of several processes.

use std::time::Duration;

use async_trait::async_trait;

use super::{CallStatement, CallsDatabase, changes, row};
use crate::approvals::{
    Approval, ApprovalDecision, ApprovalId, ApprovalQuery, ApprovalRequest, ApprovalState, ApprovalStore,
    ApprovalStoreError, GRANT_LIFE, GrantScope, MAX_KEPT_OF_ORG, MAX_KEPT_OF_REQUESTER, MAX_OF_ORG,
    MAX_OF_REQUESTER, MAX_PAGE, NoticeClaim, REQUEST_LIFE, RequestReceipt, Result,
};
use crate::columns::Columns;
use crate::records::CallId;

from_failure!(sqlx::Error => ApprovalStoreError::Unavailable);

/// Columns of a request.
const COLUMNS: &str = "SELECT seq, id, org, principal, requester, issuer, client, machine, server, primitive, title, \
     protocol, approvers, approvers_iss, rule, arguments, policy, shown, call_id, created_ms, expires_ms, decided_ms, \
     decided_by, reason, used_ms, notify_attempts, now_ms() - created_ms AS age_ms, \
     CASE WHEN state IN ('pending', 'approved') AND expires_ms <= now_ms() THEN 'expired' ELSE state END AS state_now \
     FROM approvals";
/// Condition of the scope in the parameters $1 to $8.
const OF_SCOPE: &str = "org = $1 AND principal = $2 AND server = $3 AND primitive = $4 AND approvers = $5 \
     AND approvers_iss = $6 AND arguments = $7 AND policy = $8";
/// Condition of the requester in the parameters of an insertion.
const OF_REQUESTER: &str = "org = $1 AND requester = $10 AND issuer = $11";
/// Condition of a request that can be decided or used.
const LIVE: &str = "state IN ('pending', 'approved') AND expires_ms > now_ms()";

/// Binds a scope as the first eight parameters.
fn of_scope(text: impl Into<String>, scope: &GrantScope) -> CallStatement {
    let GrantScope { org, principal, server, primitive, approvers, approvers_iss, arguments, policy } = scope;
    statement!(
        text,
        org.as_str(),
        *principal,
        server.as_str(),
        primitive.as_str(),
        approvers.as_str(),
        approvers_iss.as_str(),
        *arguments,
        *policy
    )
}

/// Returns the insertion of a request, unless its scope has a live one or a bound is reached.
fn insertion(request: &ApprovalRequest, notify: bool) -> CallStatement {
    let text = format!(
        "INSERT INTO approvals (org, principal, server, primitive, approvers, approvers_iss, arguments, policy, \
         id, requester, issuer, client, machine, title, protocol, rule, shown, call_id, \
         state, created_ms, expires_ms, notify_ms) \
         SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, \
         'pending', now_ms(), now_ms() + $19, now_ms() * $20 \
         WHERE NOT EXISTS (SELECT 1 FROM approvals WHERE {OF_SCOPE} AND {LIVE}) \
         AND (SELECT COUNT(*) FROM approvals WHERE {OF_REQUESTER} AND state = 'pending' AND expires_ms > now_ms()) < $21 \
         AND (SELECT COUNT(*) FROM approvals WHERE org = $1 AND state = 'pending' AND expires_ms > now_ms()) < $22 \
         AND (SELECT COUNT(*) FROM approvals WHERE org = $1) < $23 \
         AND (SELECT COUNT(*) FROM approvals WHERE {OF_REQUESTER}) < $24"
    );
    let ApprovalRequest {
        id, requester, issuer, client, is_machine, title, protocol, rule, shown, call, ..
    } = request;
    of_scope(text, &request.scope)
        .bind(*id)
        .bind(requester.as_str())
        .bind(issuer.as_str())
        .bind(client.as_str())
        .bind(i64::from(*is_machine))
        .bind(title.as_str())
        .bind(protocol.as_str())
        .bind(rule.as_str())
        .bind(shown.as_str())
        .bind(*call)
        .bind(REQUEST_LIFE)
        .bind(i64::from(notify))
        .bind(MAX_OF_REQUESTER)
        .bind(MAX_OF_ORG)
        .bind(MAX_KEPT_OF_ORG)
        .bind(MAX_KEPT_OF_REQUESTER)
}

/// Returns the live request of a scope.
async fn live<D: CallsDatabase>(database: &D, scope: &GrantScope) -> sqlx::Result<Option<ApprovalId>> {
    let text = format!("SELECT id FROM approvals WHERE {OF_SCOPE} AND {LIVE} ORDER BY seq LIMIT 1");
    row(database, of_scope(text, scope)).await?.map(|row| row.id("id")).transpose()
}

#[async_trait]
impl<D: CallsDatabase> ApprovalStore for D {
    async fn request_approval(&self, request: &ApprovalRequest, notify: bool) -> Result<RequestReceipt> {
        if let Some(id) = live(self, &request.scope).await? {
            return Ok(RequestReceipt::Joined(id));
        }
        // Of the requests of an org one is stored at a time, so that the bounds hold and a scope has one live request.
        let lock = format!("approvals of {}", request.scope.org);
        if self.execute_in_turn(Some(lock.as_str()), vec![insertion(request, notify)]).await? == 1 {
            return Ok(RequestReceipt::Stored(request.id));
        }
        Ok(match live(self, &request.scope).await? {
            Some(id) => RequestReceipt::Joined(id),
            None => RequestReceipt::Full,
        })
    }

    async fn approval(&self, id: ApprovalId) -> Result<Option<Approval>> {
        let found = row(self, statement!(format!("{COLUMNS} WHERE id = $1"), id)).await?;
        Ok(found.as_ref().map(read_approval).transpose()?)
    }

    async fn approvals(&self, query: &ApprovalQuery) -> Result<Vec<Approval>> {
        let condition = match query.state {
            None => "$3 = ''",
            Some(ApprovalState::Pending | ApprovalState::Approved) => "state = $3 AND expires_ms > now_ms()",
            Some(ApprovalState::Expired) => {
                "(state = $3 OR (state IN ('pending', 'approved') AND expires_ms <= now_ms()))"
            }
            Some(ApprovalState::Denied | ApprovalState::Used | ApprovalState::Withdrawn) => "state = $3",
        };
        let text = format!(
            "{COLUMNS} WHERE ($1 = '' OR org = $1) AND seq < $2 AND {condition} ORDER BY seq DESC LIMIT $4"
        );
        let state = query.state.map_or("", ApprovalState::as_str);
        let limit = query.limit.clamp(1, MAX_PAGE);
        let page = statement!(text, query.org.as_str(), query.before.unwrap_or(i64::MAX), state, limit);
        Ok(self.rows(page).await?.iter().map(read_approval).collect::<sqlx::Result<_>>()?)
    }

    async fn decide_approval(&self, id: ApprovalId, decision: &ApprovalDecision) -> Result<bool> {
        let text = "UPDATE approvals SET state = $2, decided_ms = now_ms(), decided_by = $3, reason = $4, \
             expires_ms = now_ms() + $5, notify_ms = 0 \
             WHERE id = $1 AND state = 'pending' AND expires_ms > now_ms()";
        let state = if decision.approved { ApprovalState::Approved } else { ApprovalState::Denied };
        let ApprovalDecision { by, reason, .. } = decision;
        let update = statement!(text, id, state.as_str(), by.as_str(), reason.as_str(), GRANT_LIFE);
        Ok(changes(self, update).await?)
    }

    async fn use_approval(&self, id: ApprovalId, scope: &GrantScope, call: CallId) -> Result<bool> {
        let text = format!(
            "UPDATE approvals SET state = 'used', used_ms = now_ms(), used_by = $10 \
             WHERE {OF_SCOPE} AND id = $9 AND state = 'approved' AND expires_ms > now_ms()"
        );
        Ok(changes(self, of_scope(text, scope).bind(id).bind(call)).await?)
    }

    async fn end_grant(&self, id: ApprovalId) -> Result<bool> {
        let text = "UPDATE approvals SET expires_ms = now_ms() \
             WHERE id = $1 AND state = 'approved' AND expires_ms > now_ms()";
        Ok(changes(self, statement!(text, id)).await?)
    }

    async fn withdraw_approval(&self, id: ApprovalId, call: CallId) -> Result<bool> {
        let text = "UPDATE approvals SET state = 'withdrawn', notify_ms = 0 \
             WHERE id = $1 AND call_id = $2 AND state = 'pending'";
        Ok(changes(self, statement!(text, id, call)).await?)
    }

    async fn decided_approvals(&self, since_ms: i64, limit: u32) -> Result<Vec<(ApprovalId, i64)>> {
        let text = "SELECT id, decided_ms FROM approvals WHERE decided_ms > $1 AND decided_ms > 0 \
             ORDER BY decided_ms LIMIT $2";
        let rows = self.rows(statement!(text, since_ms, limit)).await?;
        let decided = |row: &D::Row| Ok((row.id("id")?, row.number("decided_ms")?));
        Ok(rows.iter().map(decided).collect::<sqlx::Result<_>>()?)
    }

    async fn expire_approvals(&self, limit: u32) -> Result<Vec<Approval>> {
        let text = format!(
            "{COLUMNS} WHERE state IN ('pending', 'approved') AND expires_ms <= now_ms() ORDER BY expires_ms LIMIT $1"
        );
        let mut expired = Vec::new();
        for row in self.rows(statement!(text, limit)).await? {
            let approval = read_approval(&row)?;
            let text = "UPDATE approvals SET state = 'expired', notify_ms = 0 \
                 WHERE id = $1 AND state IN ('pending', 'approved') AND expires_ms <= now_ms()";
            if changes(self, statement!(text, approval.request.id)).await? {
                expired.push(approval);
            }
        }
        Ok(expired)
    }

    async fn claim_notices(&self, claim: NoticeClaim, lease: Duration, limit: u32) -> Result<Vec<Approval>> {
        let due = "SELECT seq FROM approvals WHERE notify_ms > 0 AND notify_ms <= now_ms() LIMIT 1";
        if row(self, CallStatement::new(due)).await?.is_none() {
            return Ok(Vec::new());
        }
        let text = "UPDATE approvals SET notify_ms = now_ms() + $1, notify_claim = $2, \
             notify_attempts = notify_attempts + 1 WHERE seq IN (SELECT seq FROM approvals \
             WHERE notify_ms > 0 AND notify_ms <= now_ms() ORDER BY notify_ms LIMIT $3 FOR UPDATE SKIP LOCKED)";
        if self.execute(statement!(text, lease, claim, limit)).await? == 0 {
            return Ok(Vec::new());
        }
        let rows =
            self.rows(statement!(format!("{COLUMNS} WHERE notify_claim = $1 ORDER BY seq"), claim)).await?;
        Ok(rows.iter().map(read_approval).collect::<sqlx::Result<_>>()?)
    }

    async fn end_notice(&self, id: ApprovalId, claim: NoticeClaim) -> Result<bool> {
        let text =
            "UPDATE approvals SET notify_ms = 0, notify_claim = NULL WHERE id = $1 AND notify_claim = $2";
        Ok(changes(self, statement!(text, id, claim)).await?)
    }

    async fn retry_notice(&self, id: ApprovalId, claim: NoticeClaim, after: Duration) -> Result<bool> {
        let text = "UPDATE approvals SET notify_ms = CASE WHEN notify_ms = 0 THEN 0 ELSE now_ms() + $3 END, \
             notify_claim = NULL WHERE id = $1 AND notify_claim = $2";
        Ok(changes(self, statement!(text, id, claim, after)).await?)
    }
}

fn read_approval(row: &impl Columns) -> sqlx::Result<Approval> {
    let name = row.text("state_now")?;
    let state = ApprovalState::parse(&name)
        .ok_or_else(|| sqlx::Error::Decode(format!("`{name}` is not a state of an approval").into()))?;
    Ok(Approval {
        seq: row.number("seq")?,
        request: read_request(row)?,
        state,
        created_ms: row.number("created_ms")?,
        expires_ms: row.number("expires_ms")?,
        decided_ms: row.number("decided_ms")?,
        used_ms: row.number("used_ms")?,
        decided_by: row.text("decided_by")?,
        reason: row.text("reason")?,
        age: Duration::from_millis(u64::try_from(row.number("age_ms")?).unwrap_or_default()),
        notices: u32::try_from(row.number("notify_attempts")?).unwrap_or_default(),
    })
}

fn read_request(row: &impl Columns) -> sqlx::Result<ApprovalRequest> {
    let scope = GrantScope {
        org: row.text("org")?,
        principal: row.id("principal")?,
        server: row.text("server")?,
        primitive: row.text("primitive")?,
        approvers: row.text("approvers")?,
        approvers_iss: row.text("approvers_iss")?,
        arguments: read_digest(row, "arguments")?,
        policy: read_digest(row, "policy")?,
    };
    Ok(ApprovalRequest {
        id: row.id("id")?,
        scope,
        requester: row.text("requester")?,
        issuer: row.text("issuer")?,
        client: row.text("client")?,
        is_machine: row.number("machine")? != 0,
        title: row.text("title")?,
        protocol: row.text("protocol")?,
        rule: row.text("rule")?,
        shown: row.text("shown")?,
        call: row.id("call_id")?,
    })
}

fn read_digest(row: &impl Columns, column: &str) -> sqlx::Result<[u8; 32]> {
    let bytes = row.bytes(column)?.unwrap_or_default();
    let digest: std::result::Result<[u8; 32], Vec<u8>> = bytes.try_into();
    digest.map_err(|_| sqlx::Error::Decode(format!("{column} is not 32 bytes long").into()))
}
