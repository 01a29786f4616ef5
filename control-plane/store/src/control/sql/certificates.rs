//! Certificates of machines.
//!
//! Keeps true: a name belongs to one machine, and a fingerprint to the machine that proved its key. A URI stays with
//! its org after the registration has expired, until it is deleted or registered again, so that no other org can
//! register the certificate by its hash. A revocation that matches a certificate is kept as long as the registration,
//! as for keys ([`super::machines`]). The store does not know which certificates have a URI: while one is registered,
//! the revocation of any hash may concern one of them.

use sqlx::Row;
use sqlx::any::{AnyExecutor, AnyRow};

use super::machines::{self, texts};
use super::{ControlStore, Write, rows};
use crate::control::{
    CertificateName, Change, Commit, MAX_MACHINE_CERTIFICATES_PER_ORG, MachineCertificateRecord, Result,
    StoreError, UnreadableMachine,
};

/// Certificates, and rows that this version cannot read.
type CertificateRows = (Vec<MachineCertificateRecord>, Vec<UnreadableMachine>);

/// Kind of a registration by URI.
const URI: &str = "uri";
const SELECT_ALL: &str = "SELECT id, org, machine, kind, name, proved, groups, scopes, created_at, expires_at \
     FROM machine_certificates ORDER BY org, created_at, id";
const SELECT_OF_ORG: &str = "SELECT id, org, machine, kind, name, proved, groups, scopes, created_at, expires_at \
     FROM machine_certificates WHERE org = $1 ORDER BY created_at, id";
const SELECT_NAMED: &str = "SELECT id, org, machine, kind, name, proved, groups, scopes, created_at, expires_at \
     FROM machine_certificates WHERE kind = $1 AND name = $2";

pub(super) async fn all<'e>(from: impl AnyExecutor<'e>) -> Result<CertificateRows> {
    read(&sqlx::query(SELECT_ALL).fetch_all(from).await?)
}

pub(super) async fn of_org<'e>(from: impl AnyExecutor<'e>, org: &'e str) -> Result<CertificateRows> {
    read(&query!(SELECT_OF_ORG, org).fetch_all(from).await?)
}

fn read(rows: &[AnyRow]) -> Result<CertificateRows> {
    let unread = |row: &AnyRow, error: &StoreError| {
        Ok((rows::unreadable_machine(row, "certificate", error)?, ended(row)?))
    };
    let (mut known, unread) = rows::each(rows, record, unread)?;
    let (unreadable, ended): (Vec<_>, Vec<_>) = unread.into_iter().unzip();
    known.extend(ended.into_iter().flatten());
    Ok((known, unreadable))
}

/// Returns an unreadable registration of a URI as an expired one: it grants nothing, and the URI stays with its org.
fn ended(row: &AnyRow) -> Result<Option<MachineCertificateRecord>> {
    let kind: String = row.try_get("kind")?;
    if kind != URI {
        return Ok(None);
    }
    Ok(Some(MachineCertificateRecord {
        id: row.try_get("id")?,
        org: row.try_get("org")?,
        machine: row.try_get("machine")?,
        name: CertificateName::Uri(row.try_get("name")?),
        proved: false,
        groups: Vec::new(),
        scopes: Vec::new(),
        created_at: 0,
        expires_at: 0,
    }))
}

impl ControlStore {
    /// Returns an org's certificates, oldest first. Expired ones are included until the next one is registered.
    pub async fn machine_certificates(&self, org: &str) -> Result<Vec<MachineCertificateRecord>> {
        self.within(async { Ok(of_org(&self.pool, org).await?.0) }).await
    }

    /// Returns the registration of this name, even if it has expired.
    pub async fn machine_certificate_named(
        &self,
        name: &CertificateName,
    ) -> Result<Option<MachineCertificateRecord>> {
        self.within(named(&self.pool, name)).await
    }

    /// Registers a certificate, or renews the machine's registration under this name. Returns the id of the
    /// registration, which a renewal keeps. [`StoreError::Taken`] if the name belongs to another machine. Revocations
    /// that match it, earlier or later ones, are kept until it expires.
    pub async fn put_machine_certificate(
        &self,
        change: &Change,
        new: &MachineCertificateRecord,
    ) -> Result<(String, Commit)> {
        self.within(async {
            let mut write = self.write(change, resource(&new.id)).await?;
            write.org = new.org.clone();
            machines::forget_ended(&mut write).await?;
            let known = match named(&mut *write.tx, &new.name).await? {
                // A registration with proof of the key replaces another machine's registration without one.
                Some(former)
                    if former.expires_at <= change.at
                        || (new.proved && !former.proved && !is_same_machine(&former, new)) =>
                {
                    forget(&mut write, &former).await?;
                    None
                }
                known => known,
            };
            let id = match &known {
                Some(known) if is_same_machine(known, new) => known.id.clone(),
                Some(_) => return Err(StoreError::Taken { what: "the certificate" }),
                None => new.id.clone(),
            };
            // A proof stays valid on renewal.
            let is_proved = new.proved || known.as_ref().is_some_and(|known| known.proved);
            write.resource = resource(&id);
            if known.is_none() {
                has_room(&mut write, new).await?;
            }
            let created = rows::signed(new.created_at)?;
            let expires = rows::signed(new.expires_at)?;
            let put = "INSERT INTO machine_certificates \
                 (id, org, machine, kind, name, proved, groups, scopes, created_at, expires_at) \
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) \
                 ON CONFLICT (id) DO UPDATE SET proved = excluded.proved, groups = excluded.groups, \
                 scopes = excluded.scopes, created_at = excluded.created_at, expires_at = excluded.expires_at";
            let (kind, name) = columns(&new.name);
            let groups = texts(&new.groups)?;
            let scopes = texts(&new.scopes)?;
            let put = query!(put, &id, &new.org, &new.machine, kind, name, i64::from(is_proved));
            let put = put.bind(groups).bind(scopes).bind(created).bind(expires);
            put.execute(&mut *write.tx).await?;
            machines::keep_revocations(&mut write.tx, (&new.org, &new.machine), (created, expires)).await?;
            if let Some(known) = &known {
                keep_revocations_of(&mut write, known, expires).await?;
            }
            write.stamp(true).await?;
            let action = if known.is_some() { "machine_certificate.renew" } else { "machine_certificate.add" };
            Ok((id, write.commit(action, &detail(new)).await?))
        })
        .await
    }

    /// Deletes a certificate; [`StoreError::NotFound`] if the org does not have it.
    pub async fn delete_machine_certificate(&self, change: &Change, org: &str, id: &str) -> Result<Commit> {
        self.within(async {
            let mut write = self.write(change, resource(id)).await?;
            write.org = org.to_owned();
            let delete = "DELETE FROM machine_certificates WHERE org = $1 AND id = $2 \
                 RETURNING id, org, machine, kind, name, proved, groups, scopes, created_at, expires_at";
            let gone = query!(delete, org, id).fetch_optional(&mut *write.tx).await?;
            let gone = record(&gone.ok_or(StoreError::NotFound)?);
            write.stamp(false).await?;
            // Certificates that this version cannot read can be deleted too.
            let detail = gone.map(|gone| detail(&gone)).unwrap_or_default();
            write.commit("machine_certificate.delete", &detail).await
        })
        .await
    }
}

async fn named<'e>(
    from: impl AnyExecutor<'e>,
    name: &CertificateName,
) -> Result<Option<MachineCertificateRecord>> {
    let (kind, name) = columns(name);
    query!(SELECT_NAMED, kind, name).fetch_optional(from).await?.as_ref().map(record).transpose()
}

fn is_same_machine(known: &MachineCertificateRecord, new: &MachineCertificateRecord) -> bool {
    (&known.org, &known.machine) == (&new.org, &new.machine)
}

async fn forget(write: &mut Write<'_>, ended: &MachineCertificateRecord) -> Result<()> {
    query!("DELETE FROM resources WHERE name = $1", resource(&ended.id)).execute(&mut *write.tx).await?;
    query!("DELETE FROM machine_certificates WHERE id = $1", &ended.id).execute(&mut *write.tx).await?;
    Ok(())
}

/// Fails if the limits do not allow another certificate.
async fn has_room(write: &mut Write<'_>, new: &MachineCertificateRecord) -> Result<()> {
    machines::has_room(write, &new.org).await?;
    let own = ("SELECT COUNT(*) FROM machine_certificates WHERE org = $1", new.org.as_str());
    let what = "certificates of machines of an org";
    super::check_bound(&mut write.tx, own, what, MAX_MACHINE_CERTIFICATES_PER_ORG).await
}

/// Extends revocations that would have lasted as long as the registration to the end of the renewed one.
async fn keep_revocations_of(
    write: &mut Write<'_>,
    known: &MachineCertificateRecord,
    expires: i64,
) -> Result<()> {
    let extend = "UPDATE revocations SET until_at = $1 \
         WHERE until_at < $1 AND until_at >= $2 AND (org = '' OR org = $3) \
         AND (kind = 'token_hash' OR (kind = 'token' AND target = $4))";
    let extend = query!(extend, expires, rows::signed(known.expires_at)?, &known.org, &known.id);
    extend.execute(&mut *write.tx).await?;
    Ok(())
}

fn resource(id: &str) -> String {
    format!("machine_certificate/{id}")
}

fn columns(name: &CertificateName) -> (&'static str, &str) {
    match name {
        CertificateName::Fingerprint(hash) => ("fingerprint", hash),
        CertificateName::Uri(uri) => (URI, uri),
    }
}

fn detail(record: &MachineCertificateRecord) -> String {
    let MachineCertificateRecord { machine, groups, scopes, expires_at, .. } = record;
    let (kind, name) = columns(&record.name);
    let (groups, scopes) = (groups.join(","), scopes.join(","));
    format!("{machine} {kind}={name} groups={groups} scopes={scopes} expires={expires_at}")
}

fn record(row: &AnyRow) -> Result<MachineCertificateRecord> {
    let (kind, name): (String, String) = (row.try_get("kind")?, row.try_get("name")?);
    let name = match kind.as_str() {
        "fingerprint" => CertificateName::Fingerprint(name),
        URI => CertificateName::Uri(name),
        other => return Err(StoreError::Backend(format!("column kind: `{other}` is not known"))),
    };
    Ok(MachineCertificateRecord {
        id: row.try_get("id")?,
        org: row.try_get("org")?,
        machine: row.try_get("machine")?,
        name,
        proved: rows::get(row, "proved")?,
        groups: rows::get(row, "groups")?,
        scopes: rows::get(row, "scopes")?,
        created_at: rows::get(row, "created_at")?,
        expires_at: rows::get(row, "expires_at")?,
    })
}
