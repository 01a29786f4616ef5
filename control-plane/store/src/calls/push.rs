//! The [`PushStore`] of several processes. Triggers on the records of calls add deliveries, and delete them with
//! their record.

use std::time::Duration;

use async_trait::async_trait;

use super::{CallStatement, CallsDatabase, changes, row};
use crate::columns::Columns;
use crate::push::{
    ClaimId, DeadLetter, Delivery, MAX_OF_CALL, PushStore, PushStoreError, PutReceiver, ReceiverBound,
    ReceiverRow, Result,
};
use crate::records::{BELIEVED, CallId, CallQuotas, NOBODY, OwnerId, State};

from_failure!(sqlx::Error => PushStoreError::Unavailable);

/// Number of receivers of the call $1 in row `r`, without $2.
const OTHERS_OF_CALL: &str = "(SELECT COUNT(*) FROM push_configs WHERE call_id = r.call_id AND config <> $2)";
/// Number of those of its user.
const OTHERS_OF_USER: &str = "(SELECT COUNT(*) FROM push_configs WHERE user_digest = r.user_digest \
     AND (call_id <> $1 OR config <> $2))";
/// Number of those of the org $3.
const OTHERS_OF_ORG: &str =
    "(SELECT COUNT(*) FROM push_configs WHERE org = $3 AND (call_id <> $1 OR config <> $2))";
/// Columns of a dead letter in row `d`, and its receiver in row `k`.
const DEAD: &str = "SELECT d.seq, d.call_id, d.config, d.org, d.state, d.at_ms, d.attempts, d.fault, \
     COALESCE(k.origin, '') AS origin FROM push_deliveries d \
     LEFT JOIN push_configs k ON k.call_id = d.call_id AND k.config = d.config \
     WHERE d.dead = 1 AND ($1 = '' OR d.org = $1)";

#[async_trait]
impl<D: CallsDatabase> PushStore for D {
    async fn put_receiver(&self, call: CallId, org: &str, receiver: &ReceiverRow) -> Result<PutReceiver> {
        // Locks the record: a state is stored before all of this, or after it with a delivery by the trigger.
        let mark = statement!("UPDATE call_records SET pushes = 1 WHERE call_id = $1", call);
        let insert = format!(
            "INSERT INTO push_configs AS k (call_id, config, org, user_digest, origin, created_ms, sealed) \
             SELECT r.call_id, $2, $3, r.user_digest, $4, now_ms(), $5 FROM call_records r WHERE r.call_id = $1 \
             AND {OTHERS_OF_CALL} < $6 AND {OTHERS_OF_USER} < $7 AND {OTHERS_OF_ORG} < $8 \
             ON CONFLICT (call_id, config) DO UPDATE SET origin = excluded.origin, sealed = excluded.sealed"
        );
        let ReceiverRow { config, origin, sealed } = receiver;
        let config = config.as_str();
        let origin = origin.as_str();
        let CallQuotas { of_user, of_org } = self.quotas();
        let insert = statement!(insert, call, config, org, origin, sealed, MAX_OF_CALL);
        let insert = insert.bind(of_user.receivers).bind(of_org.receivers);
        let first = "INSERT INTO push_deliveries (call_id, config, org, state, at_ms, since_ms, due_ms) \
             SELECT r.call_id, k.config, k.org, r.state, r.updated_ms, r.updated_ms, r.updated_ms \
             FROM call_records r JOIN push_configs k ON k.call_id = r.call_id WHERE r.call_id = $1 AND k.config = $2 \
             AND r.state NOT IN ('submitted', 'working') AND NOT EXISTS (SELECT 1 FROM push_deliveries d \
             WHERE d.call_id = $1 AND d.config = $2 AND d.state = r.state AND d.at_ms = r.updated_ms)";
        // Receivers of one user are receivers of one org.
        let lock = format!("receivers of {org}");
        let all = vec![mark, insert, statement!(first, call, config)];
        Ok(match self.execute_in_turn(Some(lock.as_str()), all).await? {
            0 => PutReceiver::NoCall,
            1 => PutReceiver::Full(exceeded(self, call, config).await?),
            _ => PutReceiver::Stored,
        })
    }

    async fn receivers(&self, call: CallId) -> Result<Vec<ReceiverRow>> {
        let statement = "SELECT config, origin, sealed FROM push_configs WHERE call_id = $1 \
             ORDER BY created_ms, config";
        let rows = self.rows(statement!(statement, call)).await?;
        let receiver = |row: &D::Row| {
            let config = row.text("config")?;
            let origin = row.text("origin")?;
            Ok(ReceiverRow { config, origin, sealed: row.blob("sealed")? })
        };
        Ok(rows.iter().map(receiver).collect::<sqlx::Result<_>>()?)
    }

    async fn remove_receiver(&self, call: CallId, config: &str) -> Result<bool> {
        let receiver = "DELETE FROM push_configs WHERE call_id = $1 AND config = $2";
        // One that is added in between has no receiver, and is deleted when it is claimed. A receiver that takes the id in
        // between waits for the end of the transaction, and keeps what it gets.
        let deliveries = "DELETE FROM push_deliveries WHERE call_id = $1 AND config = $2";
        let both = vec![statement!(receiver, call, config), statement!(deliveries, call, config)];
        Ok(self.execute_in_turn(None, both).await? > 0)
    }

    async fn has_receivers(&self) -> Result<bool> {
        Ok(row(self, CallStatement::new("SELECT config FROM push_configs LIMIT 1")).await?.is_some())
    }

    async fn claim_deliveries(&self, claim: ClaimId, lease: Duration, limit: u32) -> Result<Vec<Delivery>> {
        // Most looks find nothing, and need no write.
        let due = "SELECT seq FROM push_deliveries WHERE due_ms <= now_ms() AND dead = 0 LIMIT 1";
        if row(self, CallStatement::new(due)).await?.is_none() {
            return Ok(Vec::new());
        }
        let statement = "UPDATE push_deliveries SET due_ms = now_ms() + $1, claim = $2, attempts = attempts + 1 \
             WHERE seq IN (SELECT d.seq FROM push_deliveries d WHERE d.due_ms <= now_ms() AND d.dead = 0 \
             AND NOT EXISTS (SELECT 1 FROM push_deliveries e WHERE e.call_id = d.call_id \
             AND e.config = d.config AND e.dead = 0 AND e.seq < d.seq) \
             ORDER BY d.due_ms LIMIT $3 FOR UPDATE SKIP LOCKED)";
        if self.execute(statement!(statement, lease, claim, limit)).await? == 0 {
            return Ok(Vec::new());
        }
        let statement = "SELECT d.seq, d.call_id, d.config, d.org, d.state, d.at_ms, d.attempts, \
             now_ms() - d.at_ms AS age_ms, now_ms() - d.since_ms AS pending_ms, k.sealed, \
             COALESCE(r.bytes, 0) AS record_bytes FROM push_deliveries d \
             LEFT JOIN push_configs k ON k.call_id = d.call_id AND k.config = d.config \
             LEFT JOIN call_records r ON r.call_id = d.call_id WHERE d.claim = $1 ORDER BY d.seq";
        let rows = self.rows(statement!(statement, claim)).await?;
        let mut claimed = Vec::with_capacity(rows.len());
        for row in &rows {
            let delivery = read_delivery(row, claim)?;
            if delivery.sealed.is_empty() {
                // Its receiver was deleted.
                self.end_delivery(&delivery).await?;
            } else {
                claimed.push(delivery);
            }
        }
        Ok(claimed)
    }

    async fn end_delivery(&self, delivery: &Delivery) -> Result<bool> {
        let statement = "DELETE FROM push_deliveries WHERE seq = $1 AND claim = $2";
        Ok(changes(self, statement!(statement, delivery.seq, delivery.claim)).await?)
    }

    async fn retry_delivery(&self, delivery: &Delivery, after: Duration, fault: &str) -> Result<bool> {
        let noted = "UPDATE push_deliveries SET fault = $3 WHERE seq = $1 AND claim = $2";
        if !changes(self, statement!(noted, delivery.seq, delivery.claim, fault)).await? {
            return Ok(false);
        }
        Ok(release(self, delivery, after).await?)
    }

    async fn postpone_delivery(&self, delivery: &Delivery, after: Duration) -> Result<bool> {
        let noted = "UPDATE push_deliveries SET attempts = attempts - 1 WHERE seq = $1 AND claim = $2";
        if !changes(self, statement!(noted, delivery.seq, delivery.claim)).await? {
            return Ok(false);
        }
        Ok(release(self, delivery, after).await?)
    }

    async fn bury_delivery(&self, delivery: &Delivery, fault: &str) -> Result<bool> {
        let statement =
            "UPDATE push_deliveries SET dead = 1, claim = NULL, fault = $3 WHERE seq = $1 AND claim = $2";
        Ok(changes(self, statement!(statement, delivery.seq, delivery.claim, fault)).await?)
    }

    async fn fail_lost_calls(&self, me: OwnerId) -> Result<u64> {
        let mut failed = 0;
        for row in self.rows(lost_owners(me)).await? {
            failed += self.execute(failure_of_lost(OwnerId(row.id("owner")?), D::SWEEP_ROWS)).await?;
        }
        Ok(failed)
    }

    async fn dead_letters(&self, org: &str, before: i64, limit: u32) -> Result<Vec<DeadLetter>> {
        let statement = format!("{DEAD} AND d.seq < $2 ORDER BY d.seq DESC LIMIT $3");
        let rows = self.rows(statement!(statement, org, before, limit)).await?;
        Ok(rows.iter().map(read_dead).collect::<sqlx::Result<_>>()?)
    }

    async fn dead_letter(&self, org: &str, seq: i64) -> Result<Option<DeadLetter>> {
        let found = row(self, statement!(format!("{DEAD} AND d.seq = $2"), org, seq)).await?;
        Ok(found.as_ref().map(read_dead).transpose()?)
    }

    async fn replay_dead_letter(&self, org: &str, seq: i64) -> Result<bool> {
        let statement = "UPDATE push_deliveries SET dead = 0, attempts = 0, since_ms = now_ms(), due_ms = now_ms() \
             WHERE seq = $1 AND dead = 1 AND ($2 = '' OR org = $2)";
        Ok(changes(self, statement!(statement, seq, org)).await?)
    }

    async fn drop_dead_letter(&self, org: &str, seq: i64) -> Result<bool> {
        let statement = "DELETE FROM push_deliveries WHERE seq = $1 AND dead = 1 AND ($2 = '' OR org = $2)";
        Ok(changes(self, statement!(statement, seq, org)).await?)
    }
}

/// Returns the condition that the lease of the owner in `column` has lapsed, or never was.
fn lapsed_condition(column: &str) -> String {
    let believed = BELIEVED.as_millis();
    format!(
        "NOT EXISTS (SELECT 1 FROM gateways g WHERE g.owner = {column} AND g.lease_ms + {believed} > now_ms())"
    )
}

/// Returns the query for the owners that are gone and have running calls with receivers, but for `me`. Reads one index entry per
/// owner.
fn lost_owners(me: OwnerId) -> CallStatement {
    let next = |after: &str| {
        format!(
            "SELECT (SELECT r.owner FROM call_records r WHERE r.owner > {after} AND r.pushes = 1 ORDER BY r.owner LIMIT 1)"
        )
    };
    let statement = format!(
        "WITH RECURSIVE owners (owner) AS ({} UNION ALL {} FROM owners o WHERE o.owner IS NOT NULL) \
         SELECT o.owner FROM owners o WHERE o.owner IS NOT NULL AND o.owner <> $2 AND {}",
        next("$1"),
        next("o.owner"),
        lapsed_condition("o.owner")
    );
    // The id of nobody is below all others.
    statement!(statement, NOBODY.0, me.0)
}

/// Returns the update that fails the running calls with receivers of an owner that is gone, at most `limit` of them. Without an
/// owner no gateway that comes back reports another end.
fn failure_of_lost(owner: OwnerId, limit: i64) -> CallStatement {
    let fails = |row: &str| {
        format!(
            "{row}.owner = $3 AND NOT {row}.resumable \
             AND {row}.state IN ('submitted', 'working', 'input_required', 'auth_required')"
        )
    };
    let statement = format!(
        "UPDATE call_records AS r SET state = $1, updated_ms = now_ms(), owner = $2 WHERE r.call_id IN \
         (SELECT c.call_id FROM call_records c WHERE c.pushes = 1 AND {} \
         AND EXISTS (SELECT 1 FROM push_configs k WHERE k.call_id = c.call_id) LIMIT $4 FOR UPDATE SKIP LOCKED) \
         AND {} AND {}",
        fails("c"),
        fails("r"),
        lapsed_condition("r.owner")
    );
    statement!(statement, State::Failed.as_str(), NOBODY.0, owner.0, limit)
}

/// Returns the bound that a receiver of a call, which was not stored, would exceed.
async fn exceeded<D: CallsDatabase>(database: &D, call: CallId, config: &str) -> sqlx::Result<ReceiverBound> {
    let statement = format!(
        "SELECT {OTHERS_OF_CALL} AS in_call, {OTHERS_OF_USER} AS in_user FROM call_records r WHERE r.call_id = $1"
    );
    let Some(others) = row(database, statement!(statement, call, config)).await? else {
        return Ok(ReceiverBound::OfCall);
    };
    Ok(if others.number("in_call")? >= i64::from(MAX_OF_CALL) {
        ReceiverBound::OfCall
    } else if others.number("in_user")? >= i64::from(database.quotas().of_user.receivers) {
        ReceiverBound::OfUser
    } else {
        ReceiverBound::OfOrg
    })
}

/// Ends the claim of a delivery. All of its receiver's deliveries wait, so that no claim reads them in vain.
async fn release<D: CallsDatabase>(database: &D, delivery: &Delivery, after: Duration) -> sqlx::Result<bool> {
    let statement = "UPDATE push_deliveries SET due_ms = now_ms() + $3, claim = NULL WHERE dead = 0 \
         AND call_id = $4 AND config = $5 AND EXISTS \
         (SELECT 1 FROM push_deliveries h WHERE h.seq = $1 AND h.claim = $2)";
    let Delivery { seq, claim, call, config, .. } = delivery;
    let released =
        database.execute(statement!(statement, *seq, *claim, after, *call, config.as_str())).await?;
    Ok(released > 0)
}

fn read_delivery(row: &impl Columns, claim: ClaimId) -> sqlx::Result<Delivery> {
    let time = |column| {
        let time = u64::try_from(row.number(column)?).unwrap_or_default();
        Ok::<_, sqlx::Error>(Duration::from_millis(time))
    };
    Ok(Delivery {
        seq: row.number("seq")?,
        claim,
        call: row.id("call_id")?,
        config: row.text("config")?,
        org: row.text("org")?,
        state: read_state(row)?,
        at_ms: row.number("at_ms")?,
        age: time("age_ms")?,
        pending: time("pending_ms")?,
        attempts: read_attempts(row)?,
        bytes: usize::try_from(row.number("record_bytes")?).unwrap_or_default(),
        sealed: row.blob("sealed")?,
    })
}

fn read_dead(row: &impl Columns) -> sqlx::Result<DeadLetter> {
    Ok(DeadLetter {
        seq: row.number("seq")?,
        call: row.id("call_id")?,
        config: row.text("config")?,
        org: row.text("org")?,
        origin: row.text("origin")?,
        state: read_state(row)?,
        at_ms: row.number("at_ms")?,
        attempts: read_attempts(row)?,
        fault: row.text("fault")?,
    })
}

fn read_state(row: &impl Columns) -> sqlx::Result<State> {
    let name = row.text("state")?;
    State::parse(&name).ok_or_else(|| sqlx::Error::Decode(format!("`{name}` is not a state").into()))
}

fn read_attempts(row: &impl Columns) -> sqlx::Result<u32> {
    Ok(u32::try_from(row.number("attempts")?).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::SqliteCalls;

    /// Every gateway asks every few seconds.
    #[tokio::test]
    async fn gone_owners_are_looked_for_in_an_index_of_few_rows_and_in_no_row() {
        let directory = tempfile::tempdir().unwrap();
        let calls = SqliteCalls::open(&directory.path().join("calls.db")).await.unwrap();
        let owner = OwnerId([9; 16]);
        let plan = async |statement: CallStatement| {
            let rows = calls.rows(statement.explained()).await.unwrap();
            rows.iter().map(|row| row.text("detail").unwrap()).collect::<Vec<_>>().join("\n")
        };
        let lost = plan(lost_owners(owner)).await;
        assert_eq!(lost.matches(" USING COVERING INDEX active_calls_pushed (owner>?)").count(), 2, "{lost}");
        assert!(!lost.contains(" USING INDEX active_calls") && !lost.contains("SCAN r"), "{lost}");
        let failure = plan(failure_of_lost(owner, 10)).await;
        assert!(failure.contains(" USING INDEX active_calls_pushed (owner=?"), "{failure}");
    }
}
