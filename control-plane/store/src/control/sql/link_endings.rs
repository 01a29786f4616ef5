//! Linked accounts that end with a revocation: recorded in its transaction, so that none is forgotten when a process or the
//! database of calls is lost in between.

use sqlx::any::AnyRow;

use super::write::{Rank, Write};
use super::{ControlStore, check_bound, rows};
use crate::control::{EndedLinks, MAX_LINK_ENDINGS, Result, RevocationRecord};

const COUNT: &str = "SELECT COUNT(*) FROM link_endings WHERE id <> $1";
const SELECT: &str = "SELECT id, org, subject, provider, token, created_at, \
     CAST(CASE WHEN EXISTS (SELECT 1 FROM revocations r WHERE r.id = e.id) THEN 0 ELSE 1 END AS BIGINT) AS is_lifted \
     FROM link_endings e WHERE (created_at, id) > ($1, $2) ORDER BY created_at, id LIMIT $3";

impl ControlStore {
    /// Returns at most `limit` endings that have not been done, oldest first.
    pub async fn link_endings(&self, limit: u32) -> Result<Vec<EndedLinks>> {
        self.link_endings_after(None, limit).await
    }

    /// Returns at most `limit` endings that have not been done and follow `after`, oldest first.
    pub async fn link_endings_after(
        &self,
        after: Option<&EndedLinks>,
        limit: u32,
    ) -> Result<Vec<EndedLinks>> {
        self.within(async {
            let (at, id) = match after {
                Some(last) => (rows::signed(last.created_at)?, last.id.as_str()),
                None => (-1, ""),
            };
            let page = query!(SELECT, at, id, i64::from(limit));
            page.fetch_all(&self.revoking).await?.iter().map(record).collect()
        })
        .await
    }

    /// Deletes endings whose links have ended.
    pub async fn delete_link_endings(&self, ids: &[String]) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        self.within(async {
            let _turn = self.writers.turn(Rank::Other).await?;
            let these = rows::parameters(ids.len());
            let text = format!("DELETE FROM link_endings WHERE id IN ({these})");
            let mut delete = sqlx::query(sqlx::AssertSqlSafe(text));
            for id in ids {
                delete = delete.bind(id);
            }
            delete.execute(&self.pool).await?;
            Ok(())
        })
        .await
    }
}

/// Records the links that end with these revocations.
pub(super) async fn add(write: &mut Write<'_>, records: &[RevocationRecord]) -> Result<()> {
    let endings: Vec<EndedLinks> = records.iter().filter_map(EndedLinks::of).collect();
    let Some(first) = endings.first() else { return Ok(()) };
    check_bound(&mut write.tx, (COUNT, &first.id), "linked accounts to end", MAX_LINK_ENDINGS).await?;
    let text = format!(
        "INSERT INTO link_endings (id, org, subject, provider, token, created_at) {} ON CONFLICT (id) DO NOTHING",
        rows::values(endings.len(), 6)
    );
    let mut insert = sqlx::query(sqlx::AssertSqlSafe(text));
    // Of an event the revocation may have an earlier time.
    let at = rows::signed(write.change.at)?;
    for EndedLinks { id, org, subject, provider, token, created_at: _, is_lifted: _ } in &endings {
        for part in [id, org, subject, provider, token] {
            insert = insert.bind(part);
        }
        insert = insert.bind(at);
    }
    insert.execute(&mut *write.tx).await?;
    Ok(())
}

fn record(row: &AnyRow) -> Result<EndedLinks> {
    record! { row, EndedLinks { id, org, subject, provider, token, created_at, is_lifted } }
}
