//! The orgs that something is stored for.

use sqlx::any::AnyRow;

use super::{ControlStore, rows};
use crate::control::{OrgRecord, Result};

/// Rows of each kind by org; a pattern of homes names no org.
const SELECT: &str = "SELECT org, CAST(SUM(offers) AS BIGINT) AS offers, CAST(SUM(exposure) AS BIGINT) AS exposure, \
     CAST(SUM(bindings) AS BIGINT) AS bindings, CAST(SUM(limited) AS BIGINT) AS limits, \
     CAST(SUM(machines) AS BIGINT) AS machines, CAST(SUM(revocations) AS BIGINT) AS revocations FROM ( \
     SELECT org, COUNT(*) AS offers, 0 AS exposure, 0 AS bindings, 0 AS limited, 0 AS machines, 0 AS revocations \
         FROM offers GROUP BY org \
     UNION ALL SELECT org, 0, COUNT(*), 0, 0, 0, 0 FROM exposure GROUP BY org \
     UNION ALL SELECT org, 0, 0, COUNT(*), 0, 0, 0 FROM bindings GROUP BY org \
     UNION ALL SELECT org, 0, 0, 0, COUNT(*), 0, 0 FROM limits GROUP BY org \
     UNION ALL SELECT org, 0, 0, 0, 0, COUNT(*), 0 FROM machine_keys GROUP BY org \
     UNION ALL SELECT org, 0, 0, 0, 0, COUNT(*), 0 FROM machine_certificates GROUP BY org \
     UNION ALL SELECT org, 0, 0, 0, 0, 0, COUNT(*) FROM revocations GROUP BY org \
     UNION ALL SELECT org, 0, 0, 0, 0, 0, 0 FROM homes WHERE org NOT LIKE '%*' \
     ) AS stored WHERE org > $1 AND ($2 = '' OR org = $2) GROUP BY org ORDER BY org LIMIT $3";

impl ControlStore {
    /// Returns at most `limit` orgs that something is stored for, after `after` in the order of their names; only `org`
    /// unless it is empty.
    pub async fn orgs(&self, after: &str, org: &str, limit: u32) -> Result<Vec<OrgRecord>> {
        self.within(async {
            let page = query!(SELECT, after, org, i64::from(limit));
            page.fetch_all(&self.pool).await?.iter().map(record).collect()
        })
        .await
    }
}

fn record(row: &AnyRow) -> Result<OrgRecord> {
    record! { row, OrgRecord { org, offers, exposure, bindings, limits, machines, revocations } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Change, ExposureRecord};

    #[tokio::test]
    async fn orgs_are_listed_a_page_at_a_time_in_the_order_of_their_names() {
        let store = ControlStore::in_memory().await.unwrap();
        for org in ["globex", "acme", "umbrella"] {
            let exposure = ExposureRecord {
                org: org.into(),
                server: "demo".into(),
                protocol: "mcp".into(),
                enabled: true,
            };
            store.put_exposure(&Change::unconditional("test", 1), &exposure).await.unwrap();
        }
        let names = async |after: &str, org: &str, limit: u32| -> Vec<String> {
            store.orgs(after, org, limit).await.unwrap().into_iter().map(|record| record.org).collect()
        };
        assert_eq!(names("", "", 2).await, ["acme", "globex"]);
        assert_eq!(names("globex", "", 2).await, ["umbrella"]);
        assert_eq!(names("", "globex", 2).await, ["globex"]);
        assert!(names("", "nobody", 2).await.is_empty());
        let acme = store.orgs("", "acme", 1).await.unwrap().remove(0);
        assert_eq!((acme.exposure, acme.bindings, acme.revocations), (1, 0, 0));
    }
}
