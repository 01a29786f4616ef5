//! Any text as a limit in one line: no panic, and what is accepted has a rate and names that the admin API accepts.
#![no_main]

use asp_control::patterns;
use asp_control::policy::limit_line::{describe, parse};
use asp_control::policy::refill;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|line: &str| {
    let Ok(limit) = parse(line) else { return };
    assert!(refill::parse(&limit.refill).is_ok() && (1..=refill::MAX_CAPACITY).contains(&limit.capacity));
    for name in [&limit.server, &limit.user, &limit.wcit, &limit.machine, &limit.group] {
        assert!(patterns::valid_exact_or_any(name), "{name}");
    }
    assert!(patterns::valid(&limit.primitive), "{}", limit.primitive);
    assert!(limit.issuer == "*" || (patterns::is_issuer(&limit.issuer) && limit.machine == "*"));
    assert!(describe(&limit).len() < line.len() + 256);
});
