//! Invalid descriptions.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use asp_launcher::{
    Bounds, CommandError, Description, Egress, GroupFiles, Level, Limits, MAX_DESCRIPTION_BYTES, Sandbox,
    TcpEgress,
};
use serde_json::{Value, json};

fn good() -> Description {
    Description {
        sandbox: Sandbox {
            level: Level::L3,
            bounds: Bounds::Cgroup,
            keeps_user: false,
            argv: vec!["/usr/bin/python3".to_owned(), "-I".to_owned()],
            env: BTreeMap::from([("A".to_owned(), "b=c\nd".to_owned())]),
            work_dir: PathBuf::from("/srv/w/work"),
            run_dir: PathBuf::from("/srv/w/run"),
            read_only: vec![PathBuf::from("/srv/plugins/p")],
            uid: 70_000,
            gid: 70_000,
            limits: Limits {
                memory_bytes: 1 << 30,
                cpu_millis: 1000,
                pids: 64,
                files: 256,
                disk_bytes: 1 << 28,
                file_bytes: 1 << 28,
                cpu_seconds: Some(60),
            },
            egress: Some(Egress {
                proxy_socket: PathBuf::from("/srv/w/proxy.sock"),
                port: 3128,
                tcp: vec![TcpEgress {
                    socket: PathBuf::from("/srv/w/t0"),
                    host: "db.example".to_owned(),
                    address: Ipv4Addr::new(127, 0, 1, 1),
                    port: 5432,
                }],
            }),
            hostname: "worker-1".to_owned(),
        },
        group: Some(GroupFiles { unified: Some(PathBuf::from("/sys/fs/cgroup/x")), tasks: Vec::new() }),
        supervisor: 1,
    }
}

#[test]
fn a_description_survives_the_journey() {
    let text = serde_json::to_vec(&good()).unwrap();
    assert_eq!(Description::parse(&text).unwrap(), good());
}

#[test]
fn what_could_widen_a_sandbox_is_refused() {
    let too_many = vec!["x"; 257];
    let variables: BTreeMap<String, &str> = (0..129).map(|i| (format!("V{i}"), "x")).collect();
    let paths: Vec<String> = (0..65).map(|i| format!("/srv/{i}")).collect();
    let bad = [
        ("level", json!("l4")),
        ("bounds", json!("none")),
        ("keepsUser", json!(1)),
        ("argv", json!([])),
        ("argv", json!(["python3"])),
        ("argv", json!(["/usr/bin/../../x"])),
        ("argv", json!(["/bin/sh", "a\0b"])),
        ("argv", json!(too_many)),
        ("env", json!({"A B": "x"})),
        ("env", json!({"": "x"})),
        ("env", json!({"A=": "x"})),
        ("env", json!({"A": "x\0y"})),
        ("env", json!(variables)),
        ("workDir", json!("work")),
        ("workDir", json!("/")),
        ("workDir", json!("")),
        ("workDir", json!("//srv")),
        ("workDir", json!("/srv/w/")),
        ("workDir", json!("/srv/./w")),
        ("workDir", json!("/srv/../etc")),
        ("workDir", json!("/srv/w\0")),
        ("workDir", json!("/tmp")),
        ("workDir", json!("/etc/x")),
        ("workDir", json!("/proc/1/root")),
        ("workDir", json!("/srv/w/run")),
        ("workDir", json!("/srv/w/run/work")),
        ("runDir", json!("/usr/lib")),
        ("runDir", json!("/dev/shm")),
        ("runDir", json!("/srv/w/work/run")),
        ("runDir", json!(format!("/{}", "x".repeat(4096)))),
        ("readOnly", json!(["plugins"])),
        ("readOnly", json!(["/"])),
        ("readOnly", json!(["/srv/.."])),
        ("readOnly", json!(["/srv"])),
        ("readOnly", json!(["/srv/w/work/x"])),
        ("readOnly", json!(paths)),
        ("uid", json!(0)),
        ("gid", json!(0)),
        ("uid", json!(-1)),
        ("uid", json!(u32::MAX)),
        ("uid", json!(1.5)),
        ("hostname", json!("")),
        ("hostname", json!("a b")),
        ("hostname", json!("x".repeat(65))),
        ("limits", json!({})),
        ("limits", json!(null)),
        ("egress", json!({"proxySocket": "proxy", "port": 3128})),
        ("egress", json!({"proxySocket": "/srv/w/proxy.sock", "port": 80})),
        ("egress", json!({"proxySocket": format!("/{}", "x".repeat(108)), "port": 3128})),
        ("unknown", json!(1)),
    ];
    for (field, value) in bad {
        let mut description = serde_json::to_value(good()).unwrap();
        description["sandbox"][field] = value.clone();
        assert!(parse(&description).is_err(), "{field}: {value}");
    }
}

#[test]
fn a_tcp_service_is_a_name_and_port_on_the_loopback() {
    let bad = [
        ("host", json!("db.example\n127.0.0.1 evil")),
        ("host", json!("")),
        ("address", json!("10.0.0.1")),
        ("port", json!(0)),
        ("socket", json!("t0")),
        ("unknown", json!(1)),
    ];
    for (field, value) in bad {
        let mut description = serde_json::to_value(good()).unwrap();
        description["sandbox"]["egress"]["tcp"][0][field] = value.clone();
        assert!(parse(&description).is_err(), "{field}: {value}");
    }
    let mut many = good();
    if let Some(egress) = &mut many.sandbox.egress {
        egress.tcp = egress.tcp.iter().cycle().take(17).cloned().collect();
    }
    assert!(many.sandbox.check().is_err());
}

#[test]
fn a_bound_of_nothing_or_without_end_is_refused() {
    let bad = [
        ("memoryBytes", 0),
        ("memoryBytes", u64::MAX),
        ("cpuMillis", 0),
        ("pids", 0),
        ("files", 0),
        ("files", u64::MAX),
        ("diskBytes", 0),
        ("diskBytes", u64::MAX),
        ("fileBytes", u64::MAX),
        ("cpuSeconds", 0),
    ];
    for (field, value) in bad {
        let mut description = serde_json::to_value(good()).unwrap();
        description["sandbox"]["limits"][field] = json!(value);
        assert!(parse(&description).is_err(), "{field}: {value}");
    }
}

#[test]
fn a_lower_level_has_no_way_out_and_the_highest_has_a_user_namespace() {
    for level in [Level::L1, Level::L2] {
        let mut description = good();
        description.sandbox.level = level;
        assert!(parse(&serde_json::to_value(&description).unwrap()).is_err());
        description.sandbox.egress = None;
        description.sandbox.keeps_user = true;
        parse(&serde_json::to_value(&description).unwrap()).unwrap();
    }
    let mut description = good();
    description.sandbox.keeps_user = true;
    parse(&serde_json::to_value(&description).unwrap()).unwrap_err();
}

#[test]
fn bounds_by_a_control_group_need_one_and_sampled_bounds_need_none() {
    let mut description = good();
    description.group = None;
    let refused = parse(&serde_json::to_value(&description).unwrap());
    assert!(matches!(refused, Err(CommandError::NoCgroup)));
    description.sandbox.bounds = Bounds::Sampled;
    parse(&serde_json::to_value(&description).unwrap()).unwrap();
}

#[test]
fn text_that_is_no_description_is_refused() {
    let text = serde_json::to_string(&good()).unwrap();
    for end in 0..text.len() {
        assert!(Description::parse(&text.as_bytes()[..end]).is_err(), "cut at {end}");
    }
    let doubled = text.replacen("\"uid\":70000", "\"uid\":70000,\"uid\":70001", 1);
    for garbage in
        ["", "null", "[]", "{}", "\u{0}", "\u{feff}{}", "{\"sandbox\":{}}", &doubled, &format!("{text}x")]
    {
        assert!(Description::parse(garbage.as_bytes()).is_err(), "{garbage}");
    }
    assert!(Description::parse(&[0xff, 0xfe]).is_err());
    assert!(Description::parse("[".repeat(10_000).as_bytes()).is_err());
}

#[test]
fn a_description_has_a_bound() {
    let mut description = good();
    description.sandbox.env =
        (0..4).map(|i| (format!("V{i}"), "x".repeat(MAX_DESCRIPTION_BYTES / 4))).collect();
    let text = serde_json::to_vec(&description).unwrap();
    assert!(matches!(Description::parse(&text), Err(CommandError::TooLong(_))));
}

/// Replaces every byte of a valid description: the parser refuses, or finds a description that obeys the rules, and
/// never fails otherwise.
#[test]
fn a_damaged_description_is_refused_or_keeps_the_rules() {
    let text = serde_json::to_vec(&good()).unwrap();
    for place in 0..text.len() {
        for byte in [0, b'"', b'.', b'/', b'0', b'{', b'}', b'\\', 0xff] {
            let mut damaged = text.clone();
            damaged[place] = byte;
            if let Ok(description) = Description::parse(&damaged) {
                description.sandbox.check().unwrap();
                assert!(description.sandbox.uid != 0 && description.sandbox.work_dir.is_absolute());
            }
        }
    }
}

fn parse(description: &Value) -> Result<Description, CommandError> {
    Description::parse(&serde_json::to_vec(description).unwrap())
}
