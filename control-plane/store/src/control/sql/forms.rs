//! Forms of servers and orgs as last published.
//!
//! Not part of the state: writing them makes no revision, and a version that does not know them loses nothing. Keeps
//! true: no form replaces one of a later revision; a server's form is deleted with it.

use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt;
use sha2::{Digest, Sha256};
use sqlx::{AssertSqlSafe, Row};

use super::write::Rank;
use super::{ControlStore, Write, rows};
use crate::control::{MAX_FORM_BYTES, PublishedForm, Result};
use crate::hex::hex;

impl ControlStore {
    /// Deletes the forms of removed parts, unless a form of a later revision than the given one is stored.
    pub async fn forget_published_forms(&self, parts: &[(String, u64)]) -> Result<()> {
        self.within(async {
            for (part, revision) in parts {
                let _turn = self.writers.turn(Rank::Other).await?;
                let sql = "DELETE FROM published_forms WHERE part = $1 AND revision <= $2";
                query!(sql, part, rows::signed(*revision)?).execute(&self.pool).await?;
            }
            Ok(())
        })
        .await
    }

    /// Stores the forms of published parts, unless a form of a later revision is stored. Not a change: it is not
    /// audited and makes no revision. Forms longer than [`MAX_FORM_BYTES`] are skipped.
    pub async fn put_published_forms(&self, forms: &[PublishedForm]) -> Result<()> {
        self.within(async {
            let known = digests(self, forms).await?;
            let mut new: Vec<(&PublishedForm, String)> = forms
                .iter()
                .filter(|form| form.form.len() <= MAX_FORM_BYTES)
                .map(|form| (form, hex(&Sha256::digest(&form.form))))
                .filter(|(form, digest)| known.get(&form.part) != Some(digest))
                .collect();
            if new.is_empty() {
                return Ok(());
            }
            // All control planes lock the rows in the same order.
            new.sort_by(|(a, _), (b, _)| a.part.cmp(&b.part));
            // Dropped after the transaction.
            let _turn = self.writers.turn(Rank::Other).await?;
            let mut tx = self.pool.begin_with(self.writing).await?;
            for (form, digest) in new {
                let sql = "INSERT INTO published_forms (part, revision, digest, form) VALUES ($1, $2, $3, $4) \
                     ON CONFLICT (part) DO UPDATE SET revision = excluded.revision, digest = excluded.digest, form = excluded.form \
                     WHERE published_forms.revision <= excluded.revision";
                let encoded = STANDARD.encode(&form.form);
                let put = query!(sql, &form.part, rows::signed(form.revision)?, digest, encoded);
                put.execute(&mut *tx).await?;
            }
            tx.commit().await?;
            Ok(())
        })
        .await
    }

    /// Returns the stored forms of the parts. A server's form is deleted with the server.
    pub async fn published_forms(&self, parts: &[String]) -> Result<Vec<PublishedForm>> {
        self.within(async {
            let mut found = HashMap::new();
            for some in parts.chunks(rows::MAX_ROWS) {
                let statement = format!(
                    "SELECT part, revision, form FROM published_forms WHERE part IN ({})",
                    parameters(some.len())
                );
                let mut select = sqlx::query(AssertSqlSafe(statement));
                for part in some {
                    select = select.bind(part);
                }
                // Row by row: encoded forms are long.
                let mut stored = select.fetch(&self.publishing);
                while let Some(row) = stored.next().await {
                    let row = row?;
                    let part: String = row.try_get("part")?;
                    let text: String = row.try_get("form")?;
                    if let Ok(form) = STANDARD.decode(text) {
                        let revision = rows::get(&row, "revision")?;
                        found.insert(part.clone(), PublishedForm { part, revision, form });
                    }
                }
            }
            Ok(parts.iter().filter_map(|part| found.remove(part)).collect())
        })
        .await
    }
}

/// Returns the digests of the stored forms of the same parts.
async fn digests(store: &ControlStore, forms: &[PublishedForm]) -> Result<HashMap<String, String>> {
    let mut digests = HashMap::with_capacity(forms.len());
    for some in forms.chunks(rows::MAX_ROWS) {
        let statement =
            format!("SELECT part, digest FROM published_forms WHERE part IN ({})", parameters(some.len()));
        let mut select = sqlx::query(AssertSqlSafe(statement));
        for form in some {
            select = select.bind(&form.part);
        }
        for row in select.fetch_all(&store.pool).await? {
            digests.insert(row.try_get("part")?, row.try_get("digest")?);
        }
    }
    Ok(digests)
}

/// Returns `$1, $2` for the given number of values.
fn parameters(values: usize) -> String {
    let parameters: Vec<String> = (1..=values).map(|value| format!("${value}")).collect();
    parameters.join(", ")
}

/// Deletes the form of a server that is deleted, or that is new under a name used before.
pub(super) async fn go_with(write: &mut Write<'_>, server: &str) -> Result<()> {
    let delete = query!("DELETE FROM published_forms WHERE part = $1", format!("server/{server}"));
    delete.execute(&mut *write.tx).await?;
    Ok(())
}

/// Deletes the forms of servers and orgs that are no longer stored.
pub(super) async fn prune(store: &ControlStore) -> Result<()> {
    for statement in [
        "DELETE FROM published_forms WHERE part LIKE 'server/%' \
         AND NOT EXISTS (SELECT 1 FROM servers s WHERE s.name = SUBSTR(published_forms.part, 8))",
        "DELETE FROM published_forms WHERE part LIKE 'org/%' \
         AND NOT EXISTS (SELECT 1 FROM exposure e WHERE e.org = SUBSTR(published_forms.part, 5)) \
         AND NOT EXISTS (SELECT 1 FROM bindings b WHERE b.org = SUBSTR(published_forms.part, 5)) \
         AND NOT EXISTS (SELECT 1 FROM limits l WHERE l.org = SUBSTR(published_forms.part, 5))",
    ] {
        let _turn = store.writers.turn(Rank::Other).await?;
        sqlx::query(statement).execute(&store.pool).await?;
    }
    Ok(())
}
