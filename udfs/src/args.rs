//! Reads the constant arguments of a call. An error names the function, the argument and the value
//! that was found.

use arrow::array::{AsArray, ListArray};
use arrow::datatypes::{DataType, FieldRef, Float64Type};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::ColumnarValue;

use crate::tensor::named;

/// Largest height, width, padding or offset, in pixels: the limit of the JPEG format.
pub(crate) const MAX_SIDE: usize = 65_535;

/// The arguments of one call: the types of all arguments, and the values of the constants (sizes,
/// probabilities, names).
#[derive(Debug)]
pub(crate) struct CallArgs<'a> {
    function: &'a str,
    fields: &'a [FieldRef],
    values: Vec<Option<ScalarValue>>,
    /// True during planning, when a constant argument may still be an expression that is not
    /// evaluated yet.
    planning: bool,
}

impl<'a> CallArgs<'a> {
    /// Creates the arguments of a call that is being planned.
    pub(crate) fn planned(
        function: &'a str,
        fields: &'a [FieldRef],
        values: &[Option<&ScalarValue>],
    ) -> Self {
        let values = values.iter().map(|v| v.cloned()).collect();
        Self {
            function,
            fields,
            values,
            planning: true,
        }
    }

    /// Creates the arguments of a call that is being executed.
    pub(crate) fn evaluated(
        function: &'a str,
        fields: &'a [FieldRef],
        values: &[ColumnarValue],
    ) -> Self {
        let values = values
            .iter()
            .map(|v| match v {
                ColumnarValue::Scalar(value) => Some(value.clone()),
                ColumnarValue::Array(_) => None,
            })
            .collect();
        Self {
            function,
            fields,
            values,
            planning: false,
        }
    }

    /// Creates the arguments of a call in an expression. An element of `values` is `None` if that
    /// argument is not a literal.
    pub(crate) const fn literal(
        function: &'a str,
        fields: &'a [FieldRef],
        values: Vec<Option<ScalarValue>>,
    ) -> Self {
        Self {
            function,
            fields,
            values,
            planning: false,
        }
    }

    /// Returns the name of the called function.
    pub(crate) const fn function(&self) -> &'a str {
        self.function
    }

    /// Number of arguments, constant or not.
    pub(crate) const fn len(&self) -> usize {
        self.fields.len()
    }

    /// Checks that there are `low..=high` arguments; `usage` shows the call.
    pub(crate) fn expect_count(&self, low: usize, high: usize, usage: &str) -> Result<()> {
        let found = self.len();
        if (low..=high).contains(&found) {
            return Ok(());
        }
        let expected = if low == high {
            format!("{low}")
        } else {
            format!("{low} to {high}")
        };
        plan_err!(
            "{}: expected {expected} arguments as in {usage}, found {found}",
            self.function
        )
    }

    /// Returns the value of argument `i`; `None` if the argument is absent, or a constant
    /// expression that is not evaluated yet.
    fn value(&self, i: usize, what: &str, kind: &str) -> Result<Option<&ScalarValue>> {
        let Some(field) = self.fields.get(i) else {
            return Ok(None);
        };
        match self.values.get(i).and_then(Option::as_ref) {
            Some(value) if value.is_null() => {
                plan_err!("{}: {what} must be {kind}, found NULL", self.function)
            }
            Some(value) => Ok(Some(value)),
            None if self.planning => Ok(None),
            None => {
                let found = named(field);
                plan_err!(
                    "{}: {what} must be a constant, found a column of {found}",
                    self.function
                )
            }
        }
    }

    /// True if argument `i` is present and is text.
    pub(crate) fn is_text(&self, i: usize) -> bool {
        self.fields.get(i).is_some_and(|f| is_text(f.data_type()))
    }

    /// True if argument `i` is present and is a list.
    pub(crate) fn is_list(&self, i: usize) -> bool {
        self.fields.get(i).is_some_and(|f| is_list(f.data_type()))
    }

    /// Returns argument `i` as text; `None` if the argument is absent.
    pub(crate) fn text(&self, i: usize, what: &str) -> Result<Option<String>> {
        let Some(field) = self.fields.get(i) else {
            return Ok(None);
        };
        if !is_text(field.data_type()) {
            let found = named(field);
            return plan_err!("{}: {what} must be text, found {found}", self.function);
        }
        match self.value(i, what, "text")? {
            Some(value) => Ok(value.try_as_str().flatten().map(str::to_owned)),
            None => plan_err!("{}: {what} must be a text literal", self.function),
        }
    }

    /// Returns the value in `choices` whose name is the text of argument `i`; `default` if the
    /// argument is absent.
    pub(crate) fn choice<T: Copy>(
        &self,
        i: usize,
        what: &str,
        choices: &[(&str, T)],
        default: T,
    ) -> Result<T> {
        let Some(text) = self.text(i, what)? else {
            return Ok(default);
        };
        match choices
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(&text))
        {
            Some((_, choice)) => Ok(*choice),
            None => {
                let names: Vec<_> = choices
                    .iter()
                    .map(|(name, _)| format!("'{name}'"))
                    .collect();
                let names = names.join(", ");
                plan_err!(
                    "{}: {what} must be one of {names}, found '{text}'",
                    self.function
                )
            }
        }
    }

    /// Returns argument `i` as a boolean, which must be a literal; `default` if the argument is
    /// absent.
    pub(crate) fn flag(&self, i: usize, what: &str, default: bool) -> Result<bool> {
        if i >= self.len() {
            return Ok(default);
        }
        match self.value(i, what, "true or false")? {
            Some(ScalarValue::Boolean(Some(flag))) => Ok(*flag),
            Some(other) => {
                plan_err!(
                    "{}: {what} must be true or false, found {other}",
                    self.function
                )
            }
            None => plan_err!(
                "{}: {what} must be the literal true or false",
                self.function
            ),
        }
    }

    /// Returns argument `i` as a number; `default` if the argument is absent or not evaluated yet.
    pub(crate) fn real(&self, i: usize, what: &str, default: f64) -> Result<f64> {
        let Some(field) = self.fields.get(i) else {
            return Ok(default);
        };
        if !is_number(field.data_type()) {
            let found = named(field);
            return plan_err!("{}: {what} must be a number, found {found}", self.function);
        }
        let Some(value) = self.value(i, what, "a number")? else {
            return Ok(default);
        };
        match value.cast_to(&DataType::Float64) {
            Ok(ScalarValue::Float64(Some(number))) if number.is_finite() => Ok(number),
            _ => plan_err!(
                "{}: {what} must be a finite number, found {value}",
                self.function
            ),
        }
    }

    /// Returns argument `i` as a number from `low` to `high`; `default` if the argument is absent.
    pub(crate) fn real_in(
        &self,
        i: usize,
        what: &str,
        (low, high): (f64, f64),
        default: f64,
    ) -> Result<f64> {
        let number = self.real(i, what, default)?;
        if (low..=high).contains(&number) {
            return Ok(number);
        }
        let function = self.function;
        if high == f64::INFINITY {
            return plan_err!("{function}: {what} must be at least {low}, found {number}");
        }
        plan_err!("{function}: {what} must be between {low} and {high}, found {number}")
    }

    /// Returns argument `i` as a whole number, which must be a literal because shapes may depend on
    /// the number.
    pub(crate) fn whole(&self, i: usize, what: &str, (low, high): (i64, i64)) -> Result<i64> {
        if self.fields.get(i).is_some() && self.value(i, what, "a number")?.is_none() {
            // A wrong type is reported first, since that message is more helpful.
            self.real(i, what, 0.0)?;
            return plan_err!("{}: {what} must be a literal number", self.function);
        }
        let number = self.real(i, what, 0.0)?;
        if number.fract() != 0.0 || number < low as f64 || number > high as f64 {
            let function = self.function;
            return plan_err!(
                "{function}: {what} must be a whole number from {low} to {high}, found {number}"
            );
        }
        Ok(number as i64)
    }

    /// Returns argument `i` as a height or width: 1 to [`MAX_SIDE`].
    pub(crate) fn side(&self, i: usize, what: &str) -> Result<usize> {
        Ok(self.whole(i, what, (1, MAX_SIDE as i64))? as usize)
    }

    /// Returns argument `i` as a number or a list of numbers; `None` if the argument is absent or
    /// not evaluated yet (`[1, 2]` is an expression until constants are folded).
    pub(crate) fn reals(&self, i: usize, what: &str) -> Result<Option<Vec<f64>>> {
        let Some(field) = self.fields.get(i) else {
            return Ok(None);
        };
        if is_number(field.data_type()) {
            return match self.value(i, what, "a number")? {
                Some(_) => Ok(Some(vec![self.real(i, what, 0.0)?])),
                None => Ok(None),
            };
        }
        if !is_list(field.data_type()) {
            let found = named(field);
            let function = self.function;
            return plan_err!(
                "{function}: {what} must be a number or a list of numbers, found {found}"
            );
        }
        let Some(value) = self.value(i, what, "a list of numbers")? else {
            return Ok(None);
        };
        let wanted = DataType::new_list(DataType::Float64, true);
        let numbers = match value.cast_to(&wanted) {
            Ok(ScalarValue::List(list)) => list_numbers(&list),
            _ => None,
        };
        match numbers {
            Some(numbers) => Ok(Some(numbers)),
            None => plan_err!(
                "{}: {what} must be a list of finite numbers, found {value}",
                self.function
            ),
        }
    }

    /// Returns argument `i` as a list of exactly two ordered numbers; `default` if the argument is
    /// absent.
    pub(crate) fn range(&self, i: usize, what: &str, default: (f64, f64)) -> Result<(f64, f64)> {
        match self.reals(i, what)?.as_deref() {
            None => Ok(default),
            Some(&[low, high]) => self.ordered(what, low, high),
            Some(other) => {
                let n = other.len();
                plan_err!(
                    "{}: {what} must be two numbers [low, high], found {n}",
                    self.function
                )
            }
        }
    }

    /// Returns two numbers as a range; fails if `low` is above `high`.
    pub(crate) fn ordered(&self, what: &str, low: f64, high: f64) -> Result<(f64, f64)> {
        if low <= high {
            return Ok((low, high));
        }
        plan_err!(
            "{}: {what} must be in ascending order, found {low} to {high}",
            self.function
        )
    }

    /// True if argument `i` is present but not evaluated yet, so a shape that depends on the
    /// argument is unknown.
    pub(crate) fn is_pending(&self, i: usize) -> bool {
        i < self.len() && self.values.get(i).is_none_or(Option::is_none)
    }
}

fn list_numbers(list: &ListArray) -> Option<Vec<f64>> {
    let values = list.value(0);
    let values = values.as_primitive_opt::<Float64Type>()?;
    values.iter().map(|v| v.filter(|v| v.is_finite())).collect()
}

const fn is_text(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8
    )
}

const fn is_list(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(_, _)
    )
}

pub(crate) fn is_number(data_type: &DataType) -> bool {
    data_type.is_numeric() || data_type.is_null()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::Field;

    use super::*;

    fn with<T>(value: ScalarValue, read: impl Fn(&CallArgs) -> Result<T>) -> Result<T> {
        let fields = [Arc::new(Field::new("x", value.data_type(), true))];
        read(&CallArgs::planned("f", &fields, &[Some(&value)]))
    }

    #[test]
    fn numbers_of_every_type_are_read() {
        let decimal = ScalarValue::Decimal128(Some(50), 4, 2);
        for (value, expected) in [
            (ScalarValue::Int64(Some(3)), 3.0),
            (ScalarValue::UInt64(Some(3)), 3.0),
            (ScalarValue::Float64(Some(0.25)), 0.25),
            (decimal, 0.5),
        ] {
            assert_eq!(with(value, |a| a.real(0, "p", 0.0)).unwrap(), expected);
        }
        let list = ScalarValue::List(ScalarValue::new_list_nullable(
            &[ScalarValue::Int64(Some(1)), ScalarValue::Int64(Some(2))],
            &DataType::Int64,
        ));
        assert_eq!(
            with(list, |a| a.reals(0, "m")).unwrap(),
            Some(vec![1.0, 2.0])
        );
    }

    #[test]
    fn mistakes_are_named() {
        let message = |r: Result<f64>| r.unwrap_err().strip_backtrace();
        assert!(
            message(with(ScalarValue::from("a"), |a| a.real(0, "p", 0.0)))
                .contains("f: p must be a number, found Utf8")
        );
        assert!(
            message(with(ScalarValue::Int64(None), |a| a.real(0, "p", 0.0))).contains("found NULL")
        );
        assert!(
            message(with(ScalarValue::Float64(Some(1.5)), |a| a
                .whole(0, "n", (0, 9))
                .map(|n| n as f64)))
            .contains("whole number from 0 to 9, found 1.5")
        );
        assert!(
            message(with(ScalarValue::Float64(Some(2.0)), |a| a.real_in(
                0,
                "p",
                (0.0, 1.0),
                0.0
            )))
            .contains("between 0 and 1, found 2")
        );
    }
}
