//! Saturation of the e-graph: applies the rules to every match, until no rule changes the e-graph
//! or a limit is reached.
//!
//! The loop replaces egg's runner for two reasons. First, a rule is a function of two operators, so
//! its verdict on two operators is computed only once, although the two may be adjacent in many
//! plans. Second, the limits are counts and not times, so every machine finds the same plan.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use egg::Id;

use super::facts::{cat_fact, op_fact};
use super::graph::{self, Knowledge, PlanGraph, param_of, plan_fact};
use super::ids::ParamId;
use super::lang::Node;
use super::matches::Match;
use super::plan_fact::PlanFact;
use super::proof::matched;
use super::rules::{Rule, Site, Verdict, concat, in_place};
use super::slots::SlotSet;

/// Limits of a search. The search ends as soon as it reaches one of these limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of iterations. The search of a plan of `n` operators takes about `n + 1`.
    pub iterations: usize,
    /// Maximum number of e-graph nodes.
    pub nodes: usize,
    /// Maximum number of columns of all e-graph classes together. Columns are limited because the
    /// facts about each column take memory and time.
    pub columns: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            iterations: 60,
            nodes: 20_000,
            columns: 2_000_000,
        }
    }
}

/// The size of a finished search, whether the search was complete, and how often each rule was
/// applied or refused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Saturation {
    /// Number of e-graph nodes at the end of the search.
    pub nodes: usize,
    /// Number of e-graph classes at the end of the search.
    pub classes: usize,
    /// Number of columns of all e-graph classes together, including classes that were merged later.
    pub columns: usize,
    /// Number of iterations of the search.
    pub iterations: usize,
    /// True if the search ended because no rule changed the e-graph any more, false if a limit
    /// ended the search.
    pub saturated: bool,
    /// For each rule, the number of times that the rule merged two e-graph classes.
    pub fired: BTreeMap<&'static str, usize>,
    /// For each rule, the pairs of operators that the rule matched but must not rewrite, each with
    /// the condition that does not hold.
    pub refused: BTreeMap<&'static str, BTreeMap<Site, &'static str>>,
    /// The operators that must not be moved past a union, each with the condition that does not
    /// hold.
    pub refused_over_union: BTreeMap<ParamId, &'static str>,
}

/// Applies `rules` to `graph` until no rule changes the graph or a limit is reached.
pub(crate) fn saturate(
    graph: &mut PlanGraph,
    rules: &[Rule],
    disabled: impl Fn(&str) -> bool,
    limits: Limits,
) -> Saturation {
    let mut search = Search {
        graph,
        rules,
        distribute: !disabled(concat::DISTRIBUTE),
        share: !disabled(concat::SHARE),
        verdicts: HashMap::new(),
        report: Saturation::default(),
    };
    search.run(limits);
    search.report
}

struct Search<'a> {
    graph: &'a mut PlanGraph,
    rules: &'a [Rule],
    distribute: bool,
    share: bool,
    /// For each pair of operators examined, the name and verdict of each rule that matches the pair
    /// and does not refuse to rewrite the pair.
    verdicts: HashMap<Site, Arc<Vec<(&'static str, Verdict)>>>,
    report: Saturation,
}

impl Search<'_> {
    fn run(&mut self, limits: Limits) {
        let mut seen: HashSet<Match> = HashSet::new();
        let mut sizes: HashMap<Id, usize> = HashMap::new();
        // True to look for matches in every class, false to look only in changed classes.
        let mut all = true;
        graph::rebuild(self.graph);
        while self.report.iterations < limits.iterations && self.graph.analysis.poisoned.is_none() {
            self.report.iterations += 1;
            let grown = self.graph.classes().filter_map(|class| {
                (sizes.get(&class.id) != Some(&class.nodes.len())).then_some(class.id)
            });
            let grown: HashSet<Id> = grown.collect();
            let mut found = self.matches(|id| all || grown.contains(&id));
            found.retain(|&found| seen.insert(found));
            let terms: Vec<Id> = found.iter().map(|&m| matched(self.graph, m)).collect();
            sizes = self
                .graph
                .classes()
                .map(|c| (c.id, c.nodes.len()))
                .collect();
            let mut changed = false;
            for (found, term) in found.into_iter().zip(terms) {
                changed |= self.apply(found, term);
                if self.is_full(limits) {
                    break;
                }
            }
            graph::rebuild(self.graph);
            if self.is_full(limits) {
                break;
            }
            // A merge of classes can create a match although no class gained nodes. So before the
            // search ends, one iteration visits all classes.
            if !changed && all {
                self.report.saturated = true;
                break;
            }
            all = !changed;
        }
        self.report.nodes = self.graph.total_number_of_nodes();
        self.report.columns = self.graph.analysis.columns;
        self.report.classes = self.graph.number_of_classes();
    }

    fn is_full(&self, limits: Limits) -> bool {
        self.graph.total_size() > limits.nodes || self.graph.analysis.columns > limits.columns
    }

    /// Finds the matches whose upper node is in a class for which `fresh` is true, or has an input
    /// in such a class.
    fn matches(&self, fresh: impl Fn(Id) -> bool) -> Vec<Match> {
        let graph = &*self.graph;
        let mut found = Vec::new();
        for class in graph.classes() {
            for node in &class.nodes {
                match node {
                    Node::Op([p, _, x]) => {
                        if !fresh(class.id) && !fresh(graph.find(*x)) {
                            continue;
                        }
                        let Some(outer) = param_of(graph, *p) else {
                            continue;
                        };
                        for below in &graph[*x].nodes {
                            match below {
                                Node::Op([q, _, input]) => {
                                    let Some(inner) = param_of(graph, *q) else {
                                        continue;
                                    };
                                    found.push(Match::Pair {
                                        class: class.id,
                                        site: self.site(outer, inner, *input),
                                        input: graph.find(*input),
                                    });
                                }
                                Node::Cat(inputs) if self.distribute => {
                                    found.push(Match::OverCat {
                                        class: class.id,
                                        param: outer,
                                        inputs: inputs.map(|id| graph.find(id)),
                                    });
                                }
                                _ => {}
                            }
                        }
                    }
                    Node::Cat([a, b]) if self.share => {
                        let fresh = [class.id, graph.find(*a), graph.find(*b)]
                            .into_iter()
                            .any(&fresh);
                        if fresh {
                            self.shared_operators(class.id, *a, *b, &mut found);
                        }
                    }
                    _ => {}
                }
            }
        }
        found
    }

    /// The site of the operator `outer` directly above `inner`, which reads the class `input`. If
    /// both operators rewrite one slot, the site has the type of that slot in `input`.
    fn site(&self, outer: ParamId, inner: ParamId, input: Id) -> Site {
        let arena = &self.graph.analysis.arena;
        let below = in_place(arena.spec(outer), arena.spec(inner)).and_then(|slot| {
            let fact = plan_fact(self.graph, input)?;
            Some(fact.columns.get(slot)?.data_type)
        });
        Site {
            below,
            ..Site::of(outer, inner)
        }
    }

    /// Adds to `found` each operator that is the topmost operator of both `a` and `b`, the inputs
    /// of the union `class`.
    fn shared_operators(&self, class: Id, a: Id, b: Id, found: &mut Vec<Match>) {
        let graph = &*self.graph;
        for left in &graph[a].nodes {
            let Node::Op([p, _, x]) = left else { continue };
            for right in &graph[b].nodes {
                let Node::Op([q, _, y]) = right else {
                    continue;
                };
                let params = (param_of(graph, *p), param_of(graph, *q));
                if let (Some(param), true) = (params.0, params.0 == params.1) {
                    let inputs = [graph.find(*x), graph.find(*y)];
                    found.push(Match::CatOf {
                        class,
                        param,
                        inputs,
                    });
                }
            }
        }
    }

    fn verdicts(&mut self, site: Site) -> Arc<Vec<(&'static str, Verdict)>> {
        if let Some(known) = self.verdicts.get(&site) {
            return Arc::clone(known);
        }
        let arena = &mut self.graph.analysis.arena;
        let mut found = Vec::new();
        for rule in self.rules {
            match (rule.apply)(arena, site) {
                Some(Err(why)) => {
                    let refused = self.report.refused.entry(rule.name).or_default();
                    refused.insert(Site::of(site.outer, site.inner), why);
                }
                Some(verdict) => found.push((rule.name, verdict)),
                None => {}
            }
        }
        let found = Arc::new(found);
        self.verdicts.insert(site, Arc::clone(&found));
        found
    }

    /// Applies the rules that match `found`, and makes each result equal to `term`, the matched
    /// term. Returns true if this merged two classes.
    fn apply(&mut self, found: Match, term: Id) -> bool {
        match found {
            Match::Pair { class, site, input } => {
                let mut changed = false;
                for (rule, verdict) in self.verdicts(site).iter() {
                    let Ok(ops) = verdict else { continue };
                    match self.stack(class, input, ops) {
                        Ok(id) => changed |= self.unite(term, id, rule),
                        Err(why) => {
                            let refused = self.report.refused.entry(rule).or_default();
                            refused.insert(Site::of(site.outer, site.inner), why);
                        }
                    }
                }
                changed
            }
            Match::OverCat {
                class,
                param,
                inputs,
            } => match self.distributed(class, param, inputs) {
                Ok(id) => self.unite(term, id, concat::DISTRIBUTE),
                Err(why) => {
                    self.report.refused_over_union.insert(param, why);
                    false
                }
            },
            Match::CatOf {
                class,
                param,
                inputs,
            } => match self.shared(class, param, inputs) {
                Ok(id) => self.unite(term, id, concat::SHARE),
                Err(_) => false,
            },
        }
    }

    /// Adds to the graph the plan that applies `ops`, lowest first, to `input` and yields the slots
    /// of `class`. Returns the plan's id.
    fn stack(&mut self, class: Id, input: Id, ops: &[ParamId]) -> Result<Id, &'static str> {
        let (Some(whole), Some(below)) = (
            plan_fact(self.graph, class).map(Arc::clone),
            plan_fact(self.graph, input).map(Arc::clone),
        ) else {
            return Err("the class is not a plan");
        };
        let mut keeps = vec![whole.slots()];
        for &op in ops.iter().rev() {
            let wanted = &keeps[keeps.len() - 1];
            let spec = self.graph.analysis.arena.spec(op);
            keeps.push(spec.needed(wanted));
        }
        // The last entry holds the slots that the lowest operator needs from `input`. No operator
        // in `ops` yields these slots, so the entry is dropped.
        keeps.pop();
        keeps.reverse();
        // The types of the plan are checked before the plan is added: a class with contradictory
        // types would make the whole graph unusable.
        let mut fact = below;
        let mut at = Some(input);
        for (&op, keep) in ops.iter().zip(&keeps) {
            at = at.and_then(|input| self.known(op, keep, input));
            fact = match at.and_then(|id| plan_fact(self.graph, id)) {
                Some(known) => Arc::clone(known),
                None => {
                    let Knowledge { arena, profile, .. } = &mut self.graph.analysis;
                    let typed = op_fact(arena, profile, op, keep, &fact);
                    Arc::new(
                        typed.map_err(|_| "an operator could not be applied to its new input")?,
                    )
                }
            };
        }
        if !fact.agrees(&whole) {
            return Err(OTHER_TYPES);
        }
        let mut id = input;
        for (&op, keep) in ops.iter().zip(keeps) {
            id = self.over(op, keep, id);
        }
        Ok(id)
    }

    /// The class of the node that applies `op` to `input` and passes on the slots `keep`; `None` if
    /// the graph does not contain this node.
    fn known(&mut self, op: ParamId, keep: &SlotSet, input: Id) -> Option<Id> {
        let live = self.graph.analysis.arena.intern_slots(keep.clone());
        let live = self.graph.lookup(Node::LiveSlots(live))?;
        let param = self.graph.lookup(Node::Param(op))?;
        self.graph.lookup(Node::Op([param, live, input]))
    }

    fn over(&mut self, op: ParamId, keep: SlotSet, input: Id) -> Id {
        let live = self.graph.analysis.arena.intern_slots(keep);
        let live = self.graph.add(Node::LiveSlots(live));
        let param = self.graph.add(Node::Param(op));
        self.graph.add_uncanonical(Node::Op([param, live, input]))
    }

    /// Adds to the graph the plan that applies the operator `param` to each input of a union
    /// instead of to the union, if both plans are equivalent.
    fn distributed(
        &mut self,
        class: Id,
        param: ParamId,
        inputs: [Id; 2],
    ) -> Result<Id, &'static str> {
        concat::past_union(self.graph.analysis.arena.spec(param))?;
        let [whole, a, b] = facts_of(self.graph, [class, inputs[0], inputs[1]])?;
        let kept = whole.slots();
        let Knowledge { arena, profile, .. } = &mut self.graph.analysis;
        let typed = op_fact(arena, profile, param, &kept, &a)
            .and_then(|a| Ok((a, op_fact(arena, profile, param, &kept, &b)?)))
            .and_then(|(a, b)| cat_fact(arena, &a, &b));
        if !typed.is_ok_and(|fact| fact.agrees(&whole)) {
            return Err(OTHER_TYPES);
        }
        let inputs = inputs.map(|input| self.over(param, kept.clone(), input));
        Ok(self.graph.add_uncanonical(Node::Cat(inputs)))
    }

    /// Adds to the graph the plan that applies the operator `param` to a union instead of to each
    /// input of the union, if both plans are equivalent.
    fn shared(&mut self, class: Id, param: ParamId, inputs: [Id; 2]) -> Result<Id, &'static str> {
        concat::past_union(self.graph.analysis.arena.spec(param))?;
        let [whole, a, b] = facts_of(self.graph, [class, inputs[0], inputs[1]])?;
        let kept = whole.slots();
        let Knowledge { arena, profile, .. } = &mut self.graph.analysis;
        let typed =
            cat_fact(arena, &a, &b).and_then(|cat| op_fact(arena, profile, param, &kept, &cat));
        if !typed.is_ok_and(|fact| fact.agrees(&whole)) {
            return Err(OTHER_TYPES);
        }
        let cat = self.graph.add_uncanonical(Node::Cat(inputs));
        Ok(self.over(param, kept, cat))
    }

    fn unite(&mut self, term: Id, id: Id, rule: &'static str) -> bool {
        let changed = self.graph.find(term) != self.graph.find(id);
        if changed {
            *self.report.fired.entry(rule).or_default() += 1;
        }
        // Even if the classes are equal already, another proof of this equality may be shorter.
        if changed || self.graph.are_explanations_enabled() && term != id {
            self.graph.union_trusted(term, id, rule);
        }
        changed
    }
}

const OTHER_TYPES: &str = "the rewritten plan would have other columns or other column types";

fn facts_of<const N: usize>(
    graph: &PlanGraph,
    classes: [Id; N],
) -> Result<[Arc<PlanFact>; N], &'static str> {
    let facts = classes.map(|class| plan_fact(graph, class).map(Arc::clone));
    if facts.iter().any(Option::is_none) {
        return Err("the class is not a plan");
    }
    let facts: Vec<_> = facts.into_iter().flatten().collect();
    facts.try_into().map_err(|_| "the class is not a plan")
}

/// The texts of the upper and of the lower operator of `site`.
#[cfg(test)]
pub(crate) fn site_text(arena: &super::arena::Arena, site: Site) -> (String, String) {
    let text = |param| arena.spec(param).text.clone();
    (text(site.outer), text(site.inner))
}
