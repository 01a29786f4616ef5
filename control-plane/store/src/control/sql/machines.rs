//! Keys of machines.
//!
//! Keeps true: a revocation that matches a key is kept as long as the key, whichever of the two came first. Revocations
//! of tokens can be deleted after a day, the longest lifetime of a token; keys live longer.

use sqlx::Row;
use sqlx::any::{AnyExecutor, AnyRow};

use super::{ControlStore, Tx, Write, rows};
use crate::control::{
    Change, Commit, FEW_MACHINE_KEYS, MAX_MACHINE_KEYS, MAX_MACHINE_KEYS_PER_ORG, MachineKeyRecord,
    RESERVED_MACHINE_KEYS, Result, RevocationRecord, StoreError, UnreadableMachine,
};

/// Keys, and rows that this version cannot read.
type KeyRows = (Vec<MachineKeyRecord>, Vec<UnreadableMachine>);

const SELECT_ALL: &str = "SELECT id, org, machine, hash, groups, scopes, created_at, expires_at FROM machine_keys \
     ORDER BY org, created_at, id";
const SELECT_OF_ORG: &str = "SELECT id, org, machine, hash, groups, scopes, created_at, expires_at FROM machine_keys \
     WHERE org = $1 ORDER BY created_at, id";

pub(super) async fn all<'e>(from: impl AnyExecutor<'e>) -> Result<KeyRows> {
    read(&sqlx::query(SELECT_ALL).fetch_all(from).await?)
}

pub(super) async fn of_org<'e>(from: impl AnyExecutor<'e>, org: &'e str) -> Result<KeyRows> {
    read(&query!(SELECT_OF_ORG, org).fetch_all(from).await?)
}

fn read(rows: &[AnyRow]) -> Result<KeyRows> {
    rows::each(rows, record, |row, error| rows::unreadable_machine(row, "key", error))
}

impl ControlStore {
    /// Returns an org's keys, oldest first. Expired ones are included until the next key is added.
    pub async fn machine_keys(&self, org: &str) -> Result<Vec<MachineKeyRecord>> {
        self.within(async { Ok(of_org(&self.pool, org).await?.0) }).await
    }

    /// Adds a key. Revocations that match it, earlier or later ones, are kept until it expires.
    pub async fn add_machine_key(&self, change: &Change, new: &MachineKeyRecord) -> Result<Commit> {
        self.within(async {
            let mut write = self.write(change, format!("machine_key/{}", new.id)).await?;
            write.org = new.org.clone();
            forget_ended(&mut write).await?;
            has_room(&mut write, &new.org).await?;
            let own = ("SELECT COUNT(*) FROM machine_keys WHERE org = $1", new.org.as_str());
            let what = "keys of machines of an org";
            super::check_bound(&mut write.tx, own, what, MAX_MACHINE_KEYS_PER_ORG).await?;
            let created = rows::signed(new.created_at)?;
            let expires = rows::signed(new.expires_at)?;
            let insert = "INSERT INTO machine_keys (id, org, machine, hash, groups, scopes, created_at, expires_at) \
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
            let groups = texts(&new.groups)?;
            let scopes = texts(&new.scopes)?;
            let insert = query!(insert, &new.id, &new.org, &new.machine, &new.hash, groups, scopes);
            insert.bind(created).bind(expires).execute(&mut *write.tx).await?;
            keep_revocations(&mut write.tx, (&new.org, &new.machine), (created, expires)).await?;
            write.stamp(true).await?;
            write.commit("machine_key.add", &detail(new)).await
        })
        .await
    }

    /// Deletes a key; [`StoreError::NotFound`] if the org does not have it.
    pub async fn delete_machine_key(&self, change: &Change, org: &str, id: &str) -> Result<Commit> {
        self.within(async {
            let mut write = self.write(change, format!("machine_key/{id}")).await?;
            write.org = org.to_owned();
            let delete = "DELETE FROM machine_keys WHERE org = $1 AND id = $2 \
                 RETURNING id, org, machine, hash, groups, scopes, created_at, expires_at";
            let gone = query!(delete, org, id).fetch_optional(&mut *write.tx).await?;
            let gone = record(&gone.ok_or(StoreError::NotFound)?);
            write.stamp(false).await?;
            // Keys that this version cannot read can be deleted too.
            write.commit("machine_key.delete", &gone.map(|gone| detail(&gone)).unwrap_or_default()).await
        })
        .await
    }
}

/// Returns the time until which a revocation must be kept for the keys and certificates that it matches; 0 if there are
/// none.
pub(super) async fn hit_until(tx: &mut Tx, revocation: &RevocationRecord) -> Result<i64> {
    let RevocationRecord { kind, org, target, .. } = revocation;
    let latest = "SELECT COALESCE(MAX(expires_at), 0) FROM ( \
         SELECT expires_at FROM machine_keys WHERE ($2 = '' OR org = $2) AND ( \
         ($1 = 'token' AND id = $3) OR ($1 = 'token_hash' AND hash = $3) OR ($1 = 'user' AND machine = $3) \
         OR ($1 = 'org' AND org = $3)) \
         UNION ALL SELECT expires_at FROM machine_certificates WHERE ($2 = '' OR org = $2) AND ( \
         ($1 = 'token' AND id = $3) OR ($1 = 'token_hash' AND (kind = 'uri' OR name = $3)) \
         OR ($1 = 'user' AND machine = $3) OR ($1 = 'org' AND org = $3))) AS credentials";
    Ok(query!(latest, kind, org, target).fetch_one(&mut **tx).await?.try_get(0)?)
}

/// Deletes expired keys and certificates, except certificates by URI.
pub(super) async fn forget_ended(write: &mut Write<'_>) -> Result<()> {
    for sql in [
        "DELETE FROM resources WHERE name IN (SELECT 'machine_key/' || id FROM machine_keys WHERE expires_at <= $1 \
         UNION SELECT 'machine_certificate/' || id FROM machine_certificates WHERE kind <> 'uri' AND expires_at <= $1)",
        "DELETE FROM machine_keys WHERE expires_at <= $1",
        "DELETE FROM machine_certificates WHERE kind <> 'uri' AND expires_at <= $1",
    ] {
        query!(sql, rows::signed(write.change.at)?).execute(&mut *write.tx).await?;
    }
    Ok(())
}

/// Fails if the limits of all orgs together do not allow another key or certificate of this org.
pub(super) async fn has_room(write: &mut Write<'_>, org: &str) -> Result<()> {
    let own = "SELECT (SELECT COUNT(*) FROM machine_keys WHERE org = $1) \
         + (SELECT COUNT(*) FROM machine_certificates WHERE org = $1)";
    let own = super::count(&mut write.tx, own, org).await?;
    let others = "SELECT (SELECT COUNT(*) FROM machine_keys WHERE org <> $1) \
         + (SELECT COUNT(*) FROM machine_certificates WHERE org <> $1)";
    let others = super::count(&mut write.tx, others, org).await?;
    let reserved = if own < FEW_MACHINE_KEYS { 0 } else { RESERVED_MACHINE_KEYS };
    let bound = MAX_MACHINE_KEYS - reserved;
    if own + others >= bound {
        return Err(StoreError::Full { what: "keys and certificates of machines", bound });
    }
    Ok(())
}

/// Keeps revocations that match a machine's key or certificate until it expires: those of the second of its creation or
/// later.
pub(super) async fn keep_revocations(
    tx: &mut Tx,
    (org, machine): (&str, &str),
    (created, expires): (i64, i64),
) -> Result<()> {
    let extend = "UPDATE revocations SET until_at = $1 WHERE until_at < $1 AND created_at / 1000 >= $2 / 1000 \
         AND ((kind = 'user' AND org = $3 AND target = $4) OR (kind = 'org' AND target = $3))";
    query!(extend, expires, created, org, machine).execute(&mut **tx).await?;
    Ok(())
}

fn detail(record: &MachineKeyRecord) -> String {
    let MachineKeyRecord { machine, groups, scopes, expires_at, .. } = record;
    format!("{machine} groups={} scopes={} expires={expires_at}", groups.join(","), scopes.join(","))
}

pub(super) fn texts(list: &[String]) -> Result<String> {
    serde_json::to_string(list).map_err(|error| StoreError::Backend(error.to_string()))
}

fn record(row: &AnyRow) -> Result<MachineKeyRecord> {
    record!(row, MachineKeyRecord { id, org, machine, hash, groups, scopes, created_at, expires_at })
}
