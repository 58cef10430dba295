"""Forms of tool calls that templates are read for, written out by hand from what the models write."""

from specli.tokenizer.calls import CallForm, Style, Tags

DSML = CallForm(
    Style.TAGS, '<｜DSML｜invoke name="', "</｜DSML｜invoke>",
    around=("<｜DSML｜function_calls>", "</｜DSML｜function_calls>"), tokens=("｜DSML｜",),
    tags=Tags(
        '<｜DSML｜invoke name="', "</｜DSML｜invoke>", '<｜DSML｜parameter name="', "</｜DSML｜parameter>",
        is_quoted=True, has_type=True,
    ),
)  # fmt: skip
MINIMAX = CallForm(
    Style.TAGS, '<invoke name="', "</invoke>", around=("<minimax:tool_call>", "</minimax:tool_call>"),
    tags=Tags('<invoke name="', "</invoke>", '<parameter name="', "</parameter>", is_quoted=True),
)  # fmt: skip
MINICPM = CallForm(
    Style.TAGS, '<function name="', "</function>",
    tags=Tags('<function name="', "</function>", '<param name="', "</param>", is_quoted=True),
)  # fmt: skip
