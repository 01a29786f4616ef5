//! `asp-runtime`: the Runtime Supervisor.

fn main() {}
