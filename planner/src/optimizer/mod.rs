//! The optimiser: rewrites the row plan in an e-graph, and chooses the cheapest plan.
//!
//! A plan is lowered to a term over slots. The rules of the allowed tiers are applied until nothing
//! changes, and the cheapest plan of the root's class is raised to a row plan again. If anything
//! looks inconsistent, the written plan runs, and the report says why.
//!
//! | module | contents |
//! |---|---|
//! | `context`, `config`, `inputs` | the machine, the settings, and the facts that a choice depends on |
//! | [`slots`](mod@slots), `slot_map` | columns under names that no operator changes |
//! | [`spec`](mod@spec), `operators` | operators, with the properties that rules may assume |
//! | [`ids`](mod@ids), [`arena`](mod@arena) | the leaves of a term, and the objects behind them |
//! | `tree` | a plan as a tree of operators |
//! | `wide` | groups of operators that are searched as one |
//! | `lower`, `raise` | conversion of a row plan to a tree and back |
//! | `chain` | nested calls as chains of operators |
//! | [`rules`](mod@rules) | the rewrite rules, one file per family |
//! | `always_rules` | the rules that always pay, applied before the search |
//! | `initial_order` | a good order to start the search from |
//! | `lang`, `plan_fact`, `facts` | terms, and facts about the rows of a class |
//! | `log2`, `estimate` | estimates of rows and bytes |
//! | `graph`, `saturate` | the e-graph and its saturation |
//! | [`profile`](mod@profile) | sizes and selectivities measured on a few rows |
//! | [`statistics`](mod@statistics) | serialised profiles, with the sizes that sources state |
//! | [`coefficients`](mod@coefficients), `cost`, `price` | prices, and costs of operators and terms |
//! | `cache`, [`stored`](mod@stored) | legality and cost of caching, and the rows stored already |
//! | `extract`, `choose` | extraction of the cheapest plan, with its cache point |
//! | `search`, `report` | the whole search, and its report |
//! | `proof`, [`explain`](mod@explain) | the derivation of the result, for EXPLAIN |

pub(crate) mod always_rules;
pub mod arena;
pub(crate) mod cache;
mod chain;
mod choose;
pub mod coefficients;
pub(crate) mod config;
pub(crate) mod context;
pub(crate) mod cost;
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
