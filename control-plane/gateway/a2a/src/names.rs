//! Resource names of 0.3: `tasks/T` and `tasks/T/pushNotificationConfigs/C`.

const TASKS: &str = "tasks/";
const CONFIGS: &str = "/pushNotificationConfigs";

/// Returns the name of a task.
#[cfg(any(test, feature = "grpc"))]
pub(crate) fn task_name(task: &str) -> String {
    format!("{TASKS}{task}")
}

/// Returns the name of a push configuration.
pub(crate) fn config_name(task: &str, config: &str) -> String {
    format!("{TASKS}{task}{CONFIGS}/{config}")
}

/// Returns the ids of task and push configuration in a name; `tasks/T/pushNotificationConfigs` has no second one.
pub(crate) fn parse(name: &str) -> Option<(&str, Option<&str>)> {
    let rest = name.strip_prefix(TASKS)?;
    let (task, config) = match rest.split_once(CONFIGS) {
        Some((task, "" | "/")) => (task, None),
        Some((task, config)) => (task, Some(config.strip_prefix('/')?)),
        None => (rest, None),
    };
    let is_id = |id: &str| !id.is_empty() && !id.contains('/');
    (is_id(task) && config.is_none_or(is_id)).then_some((task, config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_one_or_two_ids() {
        for (name, ids) in [
            ("tasks/a", Some(("a", None))),
            ("tasks/a/pushNotificationConfigs", Some(("a", None))),
            ("tasks/a/pushNotificationConfigs/b", Some(("a", Some("b")))),
            ("tasks/", None),
            ("task/a", None),
            ("tasks/a/b", None),
            ("tasks/a/pushNotificationConfigs/b/c", None),
            ("a", None),
        ] {
            assert_eq!(parse(name), ids, "{name}");
        }
        assert_eq!(parse(&config_name("x", "y")), Some(("x", Some("y"))));
        assert_eq!(parse(&task_name("x")), Some(("x", None)));
    }
}
