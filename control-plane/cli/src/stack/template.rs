//! Templates with `${NAME}` variables. A variable in the template without a value is an error.

use std::collections::BTreeMap;

use anyhow::Context;

/// Values by name.
pub type Variables = BTreeMap<&'static str, String>;

/// Replaces every `${NAME}` outside comment lines.
pub fn render(template: &str, variables: &Variables) -> anyhow::Result<String> {
    let mut rendered = String::with_capacity(template.len());
    for line in template.split_inclusive('\n') {
        if line.trim_start().starts_with('#') {
            rendered.push_str(line);
        } else {
            render_line(line, variables, &mut rendered)?;
        }
    }
    Ok(rendered)
}

fn render_line(line: &str, variables: &Variables, rendered: &mut String) -> anyhow::Result<()> {
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, following) = after.split_once('}').context("a `${` is not closed")?;
        let value = variables.get(name).with_context(|| format!("${{{name}}} has no value"))?;
        rendered.push_str(before);
        rendered.push_str(value);
        rest = following;
    }
    rendered.push_str(rest);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variable_is_filled_and_an_unknown_one_is_an_error() {
        let variables = Variables::from([("A", "1".to_owned()), ("B", "{x}".to_owned())]);
        assert_eq!(render("# ${C}\na: ${A}, ${B}\n", &variables).unwrap(), "# ${C}\na: 1, {x}\n");
        for (template, fault) in [("${C}", "${C} has no value"), ("${A", "a `${` is not closed")] {
            assert_eq!(render(template, &variables).unwrap_err().to_string(), fault);
        }
    }

    #[test]
    fn the_bootstrap_needs_no_variable_we_do_not_give() {
        let names = ["ASP_PORT", "ASP_ENVOY_ADMIN_PORT", "ASP_XDS_PORT", "ASP_BIND", "ASP_FILTER_WASM"];
        let mut variables: Variables = names.map(|name| (name, "1".to_owned())).into();
        variables.insert("ASP_TRANSPORT_SOCKET", "{}".into());
        render(super::super::BOOTSTRAP, &variables).unwrap();
        let files = Variables::from([("ASP_TLS_CERT", "c".to_owned()), ("ASP_TLS_KEY", "k".to_owned())]);
        let tls = render(super::super::TLS, &files).unwrap();
        serde_json::from_str::<serde_json::Value>(&tls).unwrap();
        serde_json::from_str::<serde_json::Value>(super::super::PLAIN).unwrap();
    }
}
