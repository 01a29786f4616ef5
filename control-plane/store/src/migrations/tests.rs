//! The rule for migrations after the baseline, and the check of a history.

use super::*;

fn rows(migrations: &[MigrationSource]) -> Vec<AppliedMigration> {
    let row = |numbered: &MigrationSource| {
        let migration = migration(numbered);
        AppliedMigration { version: migration.version, checksum: migration.checksum }
    };
    migrations.iter().map(row).collect()
}

fn numbers(pending: Result<Vec<Migration>, SchemaError>) -> Vec<i64> {
    pending.unwrap().iter().map(|migration| migration.version).collect()
}

/// Returns the faults of the migrations after the baseline.
fn faults(schema: &Schema) -> Vec<String> {
    let mut faults = Vec::new();
    let mut before = schema.baseline.0;
    for (number, _, sql) in schema.later {
        if *number <= before || !schema.numbers.contains(number) {
            faults.push(format!("{} {number}: its number is not the next one", schema.store));
        }
        if oldest_compatible(sql).and_then(parsed).is_none_or(|oldest| Some(oldest) > parsed(OWN)) {
            faults.push(format!("{} {number}: its first line is not `{COMPATIBLE}VERSION`", schema.store));
        }
        before = *number;
    }
    faults
}

#[test]
fn every_migration_after_the_baseline_names_the_oldest_compatible_version() {
    for schema in [&CONTROL, &AUDIT, &CALLS, &LEASES, &POSTGRES] {
        assert_eq!(faults(schema), Vec::<String>::new());
    }
    let good = Schema { later: &[(101, "good", "-- compatible with: 0.1.0\nSELECT 1")], ..CALLS.clone() };
    assert_eq!(faults(&good), Vec::<String>::new());
    let bad: [&[MigrationSource]; 5] = [
        &[(101, "nothing", "SELECT 1")],
        &[(101, "too late", "-- Adds a column.\n-- compatible with: 0.1.0\nSELECT 1")],
        &[(101, "no version", "-- compatible with: 0.1\nSELECT 1")],
        &[(101, "of the future", "-- compatible with: 9999.0.0\nSELECT 1")],
        &[(100, "not the next", "-- compatible with: 0.1.0\nSELECT 1")],
    ];
    for bad in bad {
        let schema = Schema { later: bad, ..CALLS.clone() };
        assert_eq!(faults(&schema).len(), 1, "{bad:?}");
    }
}

#[test]
fn a_new_database_gets_all_and_one_that_is_up_to_date_nothing() {
    let later: &[MigrationSource] = &[(101, "later", "-- compatible with: 0.1.0\nSELECT 1")];
    let schema = Schema { later, ..CALLS.clone() };
    assert_eq!(numbers(schema.pending(&[])), [100, 101]);
    assert_eq!(numbers(schema.pending(&rows(&[CALLS.baseline]))), [101]);
    assert_eq!(numbers(schema.pending(&rows(&[CALLS.baseline, later[0]]))), Vec::<i64>::new());
}

#[test]
fn newer_tables_are_used_where_they_name_this_version_as_compatible() {
    let pending = |sql| {
        let known = [&[CALLS.baseline][..], CALLS.later].concat();
        CALLS.pending(&rows(&[&known[..], &[(103, "newer", sql)]].concat()))
    };
    assert_eq!(numbers(pending("-- compatible with: 0.1.0\nSELECT 1")), Vec::<i64>::new());
    for refused in
        ["SELECT 1", "-- compatible with: 9999.0.0\nSELECT 1", "-- compatible with: later\nSELECT 1"]
    {
        let error = pending(refused).unwrap_err();
        assert!(matches!(error, SchemaError::Newer { store: "calls", number: 103 }), "{refused}: {error}");
    }
}

#[test]
fn any_other_history_is_refused_with_what_to_do() {
    let (number, name, _) = CALLS.baseline;
    for unknown in [
        vec![(1, "calls", "SELECT 1")],
        vec![(number, name, "SELECT 1")],
        vec![(8, "of owner", "SELECT 1"), CALLS.baseline],
        vec![(101, "without a baseline", "-- compatible with: 0.1.0\nSELECT 1")],
    ] {
        let last = unknown.last().unwrap().0;
        let error = CALLS.pending(&rows(&unknown)).unwrap_err();
        assert!(
            matches!(error, SchemaError::Unknown { store: "calls", number } if number == last),
            "{unknown:?}"
        );
        assert!(error.to_string().contains("docs/upgrade.md"), "{error}");
    }
}

#[test]
fn two_stores_of_one_database_are_judged_each_by_its_own_numbers() {
    let history = rows(&[CONTROL.baseline, POSTGRES.baseline]);
    assert_eq!(numbers(CONTROL.pending(&history)), [101, 102, 103, 104, 105, 106, 107, 109, 120, 121]);
    assert_eq!(
        numbers(POSTGRES.pending(&history)),
        [1101, 1102, 1103, 1104, 1105, 1106, 1107, 1108, 1109, 1110, 1111]
    );
    assert_eq!(
        numbers(POSTGRES.pending(&rows(&[CONTROL.baseline]))),
        [1100, 1101, 1102, 1103, 1104, 1105, 1106, 1107, 1108, 1109, 1110, 1111]
    );
    let all: Vec<MigrationSource> = [&CONTROL, &POSTGRES]
        .iter()
        .flat_map(|schema| std::iter::once(&schema.baseline).chain(schema.later))
        .copied()
        .collect();
    for schema in [&CONTROL, &POSTGRES] {
        assert_eq!(numbers(schema.pending(&rows(&all))), Vec::<i64>::new());
    }
}
