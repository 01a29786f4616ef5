//! The [`LinkedAccounts`] of several processes.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::{CallStatement, CallsDatabase, changes, row};
use crate::columns::Columns;
use crate::linked_accounts::{
    HolderId, LinkFilter, LinkId, LinkKey, LinkRow, LinkTokens, LinkedAccounts, LinkedAccountsError,
    MAX_PROVIDERS, ProviderRow, RemovedLink, Result,
};

from_failure!(sqlx::Error => LinkedAccountsError::Unavailable);

const PROVIDER: &str = "SELECT name, document, revision, updated_ms, sealed FROM link_providers";
/// Columns of a link; its times are by the store's clock.
const LINK: &str = "SELECT link_id, org, issuer, subject, provider, bound, state, version, scopes, renewable, \
     access_until_ms, now_ms() AS at_ms, created_ms, used_ms, expires_ms, sealed FROM linked_accounts";
/// Moves the tokens of the links that this transaction ends.
const MOVE: &str = "INSERT INTO link_removals (link_id, org, provider, since_ms, due_ms, attempts, claim, sealed) \
     SELECT link_id, org, provider, now_ms(), now_ms(), 0, NULL, sealed FROM linked_accounts WHERE state = 'gone'";
const DELETE: &str = "DELETE FROM linked_accounts WHERE state = 'gone'";

/// Returns the condition that a link matches a filter, whose parts are the first five parameters. An index serves the parts
/// that are not empty.
fn matches(filter: LinkFilter<'_>) -> String {
    let LinkFilter { org, issuer, subject, provider, bound } = filter;
    let parts =
        [("org", org), ("issuer", issuer), ("subject", subject), ("provider", provider), ("bound", bound)];
    let conditions =
        parts.iter().zip(1..).map(|((column, part), parameter)| match (part.is_empty(), *column) {
            (true, _) => format!("${parameter} = ''"),
            // The index of bound links has no others.
            (false, "bound") => format!("bound = ${parameter} AND bound <> ''"),
            (false, column) => format!("{column} = ${parameter}"),
        });
    conditions.collect::<Vec<_>>().join(" AND ")
}

/// Binds the parts of a filter as the first parameters.
fn filtered(text: impl Into<String>, filter: LinkFilter<'_>) -> CallStatement {
    let LinkFilter { org, issuer, subject, provider, bound } = filter;
    statement!(text, org, issuer, subject, provider, bound)
}

/// Returns the end of an access token as a parameter: 0 for one that does not expire.
fn until(life: Option<Duration>) -> (bool, Duration) {
    (life.is_some(), life.unwrap_or_default())
}

#[async_trait]
impl<D: CallsDatabase> LinkedAccounts for D {
    async fn put_provider(&self, name: &str, document: &str, sealed: &Bytes) -> Result<bool> {
        let put = "INSERT INTO link_providers AS p (name, document, revision, updated_ms, sealed) \
             SELECT $1, $2, 1, now_ms(), $3 WHERE (SELECT COUNT(*) FROM link_providers WHERE name <> $1) < $4 \
             ON CONFLICT (name) DO UPDATE SET document = excluded.document, revision = p.revision + 1, \
             updated_ms = excluded.updated_ms, sealed = excluded.sealed";
        let put = statement!(put, name, document, sealed, MAX_PROVIDERS);
        Ok(self.execute_in_turn(Some("providers of links"), vec![put]).await? == 1)
    }

    async fn provider(&self, name: &str) -> Result<Option<ProviderRow>> {
        let found = row(self, statement!(format!("{PROVIDER} WHERE name = $1"), name)).await?;
        Ok(found.as_ref().map(read_provider).transpose()?)
    }

    async fn providers(&self) -> Result<Vec<ProviderRow>> {
        let rows = self.rows(CallStatement::new(format!("{PROVIDER} ORDER BY name"))).await?;
        Ok(rows.iter().map(read_provider).collect::<sqlx::Result<_>>()?)
    }

    async fn delete_provider(&self, name: &str) -> Result<bool> {
        let delete = "DELETE FROM link_providers WHERE name = $1 \
             AND NOT EXISTS (SELECT 1 FROM linked_accounts WHERE provider = $1) \
             AND NOT EXISTS (SELECT 1 FROM link_removals WHERE provider = $1)";
        Ok(changes(self, statement!(delete, name)).await?)
    }

    async fn put_link(&self, id: LinkId, key: &LinkKey, tokens: &LinkTokens, keep: Duration) -> Result<()> {
        let put = "INSERT INTO linked_accounts (link_id, org, issuer, subject, provider, bound, state, version, scopes, \
             renewable, access_until_ms, created_ms, used_ms, expires_ms, lease_by, lease_ms, sealed) \
             SELECT $1, $2, $3, $4, $5, $13, 'live', $6, $7, CASE WHEN $8 THEN 1 ELSE 0 END, \
             CASE WHEN $9 THEN now_ms() + $10 ELSE 0 END, now_ms(), 0, now_ms() + $11, NULL, 0, $12 WHERE 1 = 1 \
             ON CONFLICT (org, issuer, subject, provider, bound) DO UPDATE SET link_id = excluded.link_id, \
             state = excluded.state, version = excluded.version, scopes = excluded.scopes, \
             renewable = excluded.renewable, access_until_ms = excluded.access_until_ms, \
             created_ms = excluded.created_ms, expires_ms = excluded.expires_ms, lease_by = NULL, lease_ms = 0, \
             sealed = excluded.sealed";
        let (expires, life) = until(tokens.access_life);
        let LinkKey { org, issuer, subject, provider, bound } = key;
        let put = statement!(put, id, org.as_str(), issuer.as_str(), subject.as_str(), provider.as_str());
        let put = put.bind(tokens.version).bind(tokens.scopes.as_str()).bind(tokens.renewable);
        let put = put.bind(expires).bind(life).bind(keep).bind(&tokens.sealed).bind(bound.as_str());
        self.execute(put).await?;
        Ok(())
    }

    async fn link(&self, key: &LinkKey) -> Result<Option<LinkRow>> {
        let text = format!(
            "{LINK} WHERE org = $1 AND issuer = $2 AND subject = $3 AND provider = $4 AND bound = $5 \
             AND expires_ms > now_ms()"
        );
        let LinkKey { org, issuer, subject, provider, bound } = key;
        let found = statement!(text, org.as_str(), issuer.as_str(), subject.as_str(), provider.as_str());
        let found = found.bind(bound.as_str());
        let found = row(self, found).await?;
        Ok(found.as_ref().map(read_link).transpose()?)
    }

    async fn links(&self, filter: LinkFilter<'_>, limit: u32) -> Result<Vec<LinkRow>> {
        let text = format!(
            "{LINK} WHERE {} AND expires_ms > now_ms() ORDER BY created_ms DESC, link_id LIMIT $6",
            matches(filter)
        );
        let rows = self.rows(filtered(text, filter).bind(limit)).await?;
        Ok(rows.iter().map(read_link).collect::<sqlx::Result<_>>()?)
    }

    async fn note_use(&self, id: LinkId, every: Duration) -> Result<()> {
        let note =
            "UPDATE linked_accounts SET used_ms = now_ms() WHERE link_id = $1 AND used_ms < now_ms() - $2";
        self.execute(statement!(note, id, every)).await?;
        Ok(())
    }

    async fn claim_refresh(&self, id: LinkId, version: i64, by: HolderId, lease: Duration) -> Result<bool> {
        let claim = "UPDATE linked_accounts SET lease_by = $3, lease_ms = now_ms() + $4 WHERE link_id = $1 \
             AND version = $2 AND state = 'live' AND lease_ms <= now_ms()";
        Ok(changes(self, statement!(claim, id, version, by, lease)).await?)
    }

    async fn end_refresh(&self, id: LinkId, version: i64, tokens: &LinkTokens) -> Result<bool> {
        // Also after the lease, and if somebody else has claimed the link since: the version shows that these are its newest
        // tokens. Live again: what a service rejected in between were the former ones.
        let end = "UPDATE linked_accounts SET version = $3, state = 'live', scopes = $4, \
             renewable = CASE WHEN $5 THEN 1 ELSE 0 END, \
             access_until_ms = CASE WHEN $6 THEN now_ms() + $7 ELSE 0 END, lease_by = NULL, lease_ms = 0, \
             sealed = $8 WHERE link_id = $1 AND version = $2";
        let (expires, life) = until(tokens.access_life);
        let end = statement!(end, id, version, tokens.version, tokens.scopes.as_str(), tokens.renewable);
        let end = end.bind(expires).bind(life).bind(&tokens.sealed);
        Ok(changes(self, end).await?)
    }

    async fn give_up_refresh(&self, id: LinkId, by: HolderId) -> Result<()> {
        let give_up =
            "UPDATE linked_accounts SET lease_by = NULL, lease_ms = 0 WHERE link_id = $1 AND lease_by = $2";
        self.execute(statement!(give_up, id, by)).await?;
        Ok(())
    }

    async fn reseal(&self, id: LinkId, version: i64, sealed: &Bytes) -> Result<bool> {
        let reseal = "UPDATE linked_accounts SET sealed = $3 WHERE link_id = $1 AND version = $2";
        Ok(changes(self, statement!(reseal, id, version, sealed)).await?)
    }

    async fn mark_dead(&self, id: LinkId, version: i64) -> Result<bool> {
        let mark = "UPDATE linked_accounts SET state = 'dead' WHERE link_id = $1 AND version = $2 AND state = 'live'";
        Ok(changes(self, statement!(mark, id, version)).await?)
    }

    async fn remove_links(&self, filter: LinkFilter<'_>) -> Result<u64> {
        let matches = matches(filter);
        let count = format!("SELECT COUNT(*) AS links FROM linked_accounts WHERE {matches}");
        let count = row(self, filtered(count, filter)).await?;
        let count = count.map(|row| row.number("links")).transpose()?.unwrap_or_default();
        // Locks the rows first: tokens of a refresh are stored before all of this, or not at all.
        let mark = filtered(format!("UPDATE linked_accounts SET state = 'gone' WHERE {matches}"), filter);
        let changed = self.execute_in_turn(None, ending(mark)).await?;
        Ok(if changed == 0 { 0 } else { u64::try_from(count).unwrap_or_default().max(1) })
    }

    async fn expire_links(&self, limit: u32) -> Result<u64> {
        let due = "SELECT link_id FROM linked_accounts WHERE expires_ms <= now_ms() LIMIT $1";
        let due = self.rows(statement!(due, limit)).await?.len();
        if due == 0 {
            return Ok(0);
        }
        let mark = "UPDATE linked_accounts SET state = 'gone' WHERE link_id IN (SELECT link_id \
             FROM linked_accounts WHERE expires_ms <= now_ms() LIMIT $1 FOR UPDATE SKIP LOCKED)";
        let changed = self.execute_in_turn(None, ending(statement!(mark, limit))).await?;
        Ok(if changed == 0 { 0 } else { u64::try_from(due).unwrap_or_default() })
    }

    async fn put_removed(&self, id: LinkId, org: &str, provider: &str, sealed: &Bytes) -> Result<()> {
        let put = "INSERT INTO link_removals (link_id, org, provider, since_ms, due_ms, attempts, claim, sealed) \
             SELECT $1, $2, $3, now_ms(), now_ms(), 0, NULL, $4 WHERE 1 = 1 ON CONFLICT (link_id) DO NOTHING";
        self.execute(statement!(put, id, org, provider, sealed)).await?;
        Ok(())
    }

    async fn claim_removed(&self, claim: HolderId, lease: Duration, limit: u32) -> Result<Vec<RemovedLink>> {
        // Most looks find nothing, and need no write.
        let due = "SELECT link_id FROM link_removals WHERE due_ms <= now_ms() LIMIT 1";
        if row(self, CallStatement::new(due)).await?.is_none() {
            return Ok(Vec::new());
        }
        let take = "UPDATE link_removals SET due_ms = now_ms() + $2, claim = $1, attempts = attempts + 1 \
             WHERE link_id IN (SELECT link_id FROM link_removals WHERE due_ms <= now_ms() \
             ORDER BY due_ms LIMIT $3 FOR UPDATE SKIP LOCKED)";
        self.execute(statement!(take, claim, lease, limit)).await?;
        let read = "SELECT link_id, org, provider, now_ms() - since_ms AS age_ms, attempts, sealed \
             FROM link_removals WHERE claim = $1 AND due_ms > now_ms()";
        let rows = self.rows(statement!(read, claim)).await?;
        Ok(rows.iter().map(read_removed).collect::<sqlx::Result<_>>()?)
    }

    async fn end_removed(&self, id: LinkId, claim: HolderId) -> Result<bool> {
        let end = "DELETE FROM link_removals WHERE link_id = $1 AND claim = $2";
        Ok(changes(self, statement!(end, id, claim)).await?)
    }

    async fn retry_removed(&self, id: LinkId, claim: HolderId, after: Duration) -> Result<bool> {
        let retry =
            "UPDATE link_removals SET claim = NULL, due_ms = now_ms() + $3 WHERE link_id = $1 AND claim = $2";
        Ok(changes(self, statement!(retry, id, claim, after)).await?)
    }

    async fn use_state(&self, state: [u8; 16], keep: Duration) -> Result<bool> {
        let put = "INSERT INTO link_states (state_id, expires_ms) SELECT $1, now_ms() + $2 WHERE 1 = 1 \
             ON CONFLICT (state_id) DO NOTHING";
        Ok(changes(self, statement!(put, state, keep)).await?)
    }
}

/// Returns the statements that end the links which `mark` marks as gone.
fn ending(mark: CallStatement) -> Vec<CallStatement> {
    vec![mark, CallStatement::new(MOVE), CallStatement::new(DELETE)]
}

fn read_provider(row: &impl Columns) -> sqlx::Result<ProviderRow> {
    Ok(ProviderRow {
        name: row.text("name")?,
        document: row.text("document")?,
        revision: row.number("revision")?,
        updated_ms: row.number("updated_ms")?,
        sealed: row.blob("sealed")?,
    })
}

fn read_link(row: &impl Columns) -> sqlx::Result<LinkRow> {
    let at_ms = row.number("at_ms")?;
    let access_life = match row.number("access_until_ms")? {
        0 => None,
        until => Some(milliseconds(until.saturating_sub(at_ms))),
    };
    let expires_ms = row.number("expires_ms")?;
    Ok(LinkRow {
        id: row.id("link_id")?,
        key: LinkKey {
            org: row.text("org")?,
            issuer: row.text("issuer")?,
            subject: row.text("subject")?,
            provider: row.text("provider")?,
            bound: row.text("bound")?,
        },
        is_live: row.text("state")? == "live",
        version: row.number("version")?,
        scopes: row.text("scopes")?,
        renewable: row.number("renewable")? != 0,
        access_life,
        created_ms: row.number("created_ms")?,
        used_ms: row.number("used_ms")?,
        expires_ms,
        life: milliseconds(expires_ms.saturating_sub(at_ms)),
        sealed: row.blob("sealed")?,
    })
}

fn read_removed(row: &impl Columns) -> sqlx::Result<RemovedLink> {
    Ok(RemovedLink {
        id: row.id("link_id")?,
        org: row.text("org")?,
        provider: row.text("provider")?,
        age: milliseconds(row.number("age_ms")?),
        attempts: u32::try_from(row.number("attempts")?).unwrap_or_default(),
        sealed: row.blob("sealed")?,
    })
}

fn milliseconds(number: i64) -> Duration {
    Duration::from_millis(u64::try_from(number).unwrap_or_default())
}
