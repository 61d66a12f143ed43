//! The optimiser: rewrites the row plan in an e-graph, and chooses the cheapest plan.
//!
//! A plan is lowered to a term over slots. The rules of the allowed tiers are applied until no rule
//! changes the e-graph or a limit is reached. The cheapest plan of the root's class is then raised
//! to a row plan. If a check of the e-graph or of that plan fails, the plan runs as written, and
//! the report gives the reason.
//!
//! | module | contents |
//! |---|---|
//! | `context`, `config`, `inputs` | the machine, the settings, and the facts that a choice of a plan depends on |
//! | [`slots`](mod@slots), `slot_map` | columns under names that no operator changes, and maps from such columns |
//! | [`spec`](mod@spec), `operators` | operators with the properties that rules may assume, and their constructors |
//! | [`ids`](mod@ids), [`arena`](mod@arena) | the leaves of a term, and the arena that they index |
//! | `tree` | a plan as a tree of operators |
//! | `wide` | groups of operators that are searched as one |
//! | `lower`, `raise` | conversion of a row plan to a tree and back |
//! | `chain` | nested function calls as chains of operators |
//! | [`rules`](mod@rules) | the rewrite rules, one file per family |
//! | `always_rules` | the rules that never make a plan worse, applied before the search |
//! | `initial_order` | a good order of operators, from which the search also starts |
//! | `lang`, `plan_fact`, `facts` | terms, and facts about the rows of a class |
//! | `decoding` | the cost of decoding parts of photos |
//! | `log2`, `estimate` | estimates of rows and bytes |
//! | `graph`, `matches`, `saturate` | the e-graph, the matches of rules in it, and its saturation |
//! | [`profile`](mod@profile) | sizes and selectivities measured on a few rows |
//! | [`statistics`](mod@statistics) | profiles in serialisable form, with the sizes that sources state |
//! | [`coefficients`](mod@coefficients), `cost`, `price` | prices, and costs of operators and terms |
//! | `cache`, [`stored`](mod@stored) | legality and cost of caching, and the rows that a cache holds already |
//! | `extract`, `choose` | extraction of the cheapest plan, with its cache point |
//! | `search`, `report` | the whole search, and its report |
//! | `proof`, [`explain`](mod@explain) | the derivation of the chosen plan, for EXPLAIN |

pub(crate) mod always_rules;
pub mod arena;
pub(crate) mod cache;
mod chain;
mod choose;
pub mod coefficients;
pub(crate) mod config;
pub(crate) mod context;
pub(crate) mod cost;
mod decoding;
pub(crate) mod estimate;
pub mod explain;
pub(crate) mod extract;
pub(crate) mod facts;
pub(crate) mod graph;
pub mod ids;
pub(crate) mod initial_order;
pub(crate) mod inputs;
pub(crate) mod lang;
pub(crate) mod log2;
pub(crate) mod lower;
mod matches;
mod operators;
pub(crate) mod plan_fact;
pub(crate) mod price;
pub mod profile;
mod proof;
pub(crate) mod raise;
pub(crate) mod report;
pub mod rules;
pub(crate) mod saturate;
mod search;
pub(crate) mod slot_map;
pub mod slots;
pub mod spec;
pub mod statistics;
pub mod stored;
#[cfg(test)]
mod tests;
pub(crate) mod tree;
pub(crate) mod wide;

pub use config::Config;
pub use context::PlanningContext;
pub use report::Report;
pub use search::optimize;
