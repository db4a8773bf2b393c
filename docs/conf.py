"""Settings of the documentation: pages of this folder, the API from docstrings, the notebooks as they are stored.

sphinx-build -W --keep-going -b html docs docs/_build
"""

import inspect
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from docstrings import as_rst  # noqa: E402

from jaxbounds import __version__  # noqa: E402

project, author, copyright = "jaxbounds", "The jaxbounds authors", "The jaxbounds authors"
version = release = __version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.mathjax"]
exclude_patterns = ["_build", "jupyter_execute"]  # both are made by the build
html_theme, html_title = "furo", f"jaxbounds {version}"
html_copy_source = False

myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence"]
myst_heading_anchors = 3
nb_execution_mode = "off"
nb_execution_cache_path = str(HERE / "_build" / ".jupyter_cache")

add_module_names = False
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True


def copy_notebooks(app, config):
    """Sphinx reads nothing outside its folder."""
    target = HERE / "notebooks"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for path in sorted((HERE.parent / "notebooks").iterdir()):
        if path.suffix in (".ipynb", ".png"):
            shutil.copy(path, target)


def plain_docstring(app, what, name, obj, options, lines):
    lines[:] = as_rst("\n".join(lines))


def made_by_users(app, what, name, obj, options, signature, returns):
    """No signature for classes that the library makes and users only read: their docstrings have no Args."""
    if what == "class" and "Args:" not in (inspect.getdoc(obj) or ""):
        return "", None
    return signature, returns


def setup(app):
    app.connect("config-inited", copy_notebooks)
    app.connect("autodoc-process-docstring", plain_docstring)
    app.connect("autodoc-process-signature", made_by_users)
