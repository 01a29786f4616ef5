//! Policy files: their form, and the order of changes.

use super::*;

const FILE: &str = "
org: acme
exposure:
  - {server: demo, protocol: mcp, enabled: true}
bindings:
  - {target: {type: user, idOrPattern: bob}, primitive: {name: pay}, allowed: false}
limits:
  - 60/min for each user on shop.*
";

#[test]
fn a_file_has_the_form_of_the_api_and_limits_in_one_line() {
    let file = parse(FILE).unwrap();
    assert_eq!(file.org, "acme");
    let binding = json!({ "target": { "type": "user", "idOrPattern": "bob" },
        "primitive": { "name": "pay", "protocol": "*" }, "allowed": false });
    assert_eq!(file.bindings, Some(vec![binding]));
    let limits = file.limits.unwrap();
    assert_eq!(limits[0].pointer("/selector/user"), Some(&json!("each")));
    assert_eq!(parse("org: acme").unwrap().exposure, None, "left out");
}

#[test]
fn a_file_that_is_not_clear_is_refused() {
    for bad in [
        "",
        "[]",
        "org: acme\nbinding: []",
        "org: acme\nlimits: [60/week]",
        "org: acme\nexposure: [{server: a, protocol: mcp, enabled: true}, {server: a, protocol: mcp, enabled: false}]",
        "org: acme\nexposure: [{server: a, protocol: mcp, enabled: maybe}]",
        "org: 1",
        "org: acme\norg: globex",
    ] {
        assert!(parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn what_is_exported_is_read_back_as_it_was() {
    let file = parse(FILE).unwrap();
    let list = |list: &Option<Vec<Value>>| (list.clone().unwrap(), None);
    let stored = StoredLists {
        exposure: list(&file.exposure),
        bindings: list(&file.bindings),
        limits: list(&file.limits),
    };
    assert_eq!(parse(&yaml("acme", &stored)), Ok(file));
    let none = StoredLists { exposure: (vec![], None), bindings: (vec![], None), limits: (vec![], None) };
    let empty = parse(&yaml("a: b # c", &none)).unwrap();
    assert_eq!((empty.org.as_str(), empty.limits), ("a: b # c", Some(vec![])));
}

#[test]
fn only_what_differs_is_changed_and_denials_come_first() {
    let entry =
        |server: &str, enabled: bool| json!({ "server": server, "protocol": "mcp", "enabled": enabled });
    let stored = || (vec![entry("a", true), entry("b", true), entry("c", true)], None);
    let wanted = vec![entry("d", true), entry("a", true), entry("b", false)];
    let plan = ListPlan::new(EXPOSURE, stored(), Some(wanted));
    assert_eq!(plan.removed, [entry("c", true)]);
    assert_eq!(plan.put, [entry("b", false), entry("d", true)]);
    let untouched = ListPlan::new(EXPOSURE, stored(), None);
    assert!(untouched.removed.is_empty() && untouched.put.is_empty());
}
