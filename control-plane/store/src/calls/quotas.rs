//! Quotas of the records of ended calls.
//!
//! Keeps true: the usage of a user and an org is known without counting rows; at the quota, the calls that ended first
//! are deleted, and no more than the excess, by statements that delete few rows and read no others (I-4).

use super::CallStatement;
use super::statement::Parameter;
use crate::records::{CallQuota, CallQuotas, RecordKey};

/// User or org with a quota of ended calls.
pub(crate) struct QuotaHolder {
    /// Column of the holder's id.
    column: &'static str,
    /// Function from the id to the name under which its usage is counted.
    counted_as: &'static str,
    id: Parameter,
    quota: CallQuota,
}

impl QuotaHolder {
    /// Returns the holders of a record.
    pub(crate) fn of(key: &RecordKey, quotas: CallQuotas) -> [QuotaHolder; 2] {
        let user = key.user.into();
        let org = key.org.as_str().into();
        [
            QuotaHolder { column: "user_digest", counted_as: "of_user", id: user, quota: quotas.of_user },
            QuotaHolder { column: "org", counted_as: "of_org", id: org, quota: quotas.of_org },
        ]
    }

    /// Returns the query whether the holder is beyond its quota, as `is_over`.
    pub(crate) fn excess(&self) -> CallStatement {
        self.statement(format!(
            "SELECT COALESCE(SUM(records) > $2 OR SUM(bytes) > $3, FALSE) AS is_over FROM record_usage \
             WHERE holder = {}($1)",
            self.counted_as
        ))
    }

    /// Returns the deletion of the holder's earliest ended records beyond its quota, at most `rows` of them.
    pub(crate) fn deletion(&self, rows: i64) -> CallStatement {
        let QuotaHolder { column, counted_as, .. } = self;
        let statement = format!(
            "DELETE FROM call_records WHERE call_id IN (SELECT call_id FROM (\
             SELECT call_id, ROW_NUMBER() OVER earliest AS place, SUM(bytes) OVER earliest - bytes AS earlier \
             FROM (SELECT call_id, updated_ms, bytes FROM call_records WHERE {column} = $1 AND owner IS NULL \
             ORDER BY updated_ms, call_id LIMIT $4) AS first_ended \
             WINDOW earliest AS (ORDER BY updated_ms, call_id)) AS placed, \
             (SELECT SUM(records) AS kept, SUM(bytes) AS held FROM record_usage WHERE holder = {counted_as}($1)) \
             AS usage WHERE place <= kept - $2 OR earlier < held - $3)"
        );
        self.statement(statement).bind(rows)
    }

    /// Binds the id and the quota as the first three parameters.
    fn statement(&self, text: String) -> CallStatement {
        CallStatement::new(text).bind(self.id.clone()).bind(self.quota.records).bind(self.quota.bytes)
    }
}
