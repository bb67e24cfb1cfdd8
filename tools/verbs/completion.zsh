#compdef gpumem
# zsh completion of gpumem, made by gpumem help --completion zsh
_gpumem() {
	local -a verbs
	verbs=(
@verbs@
	)
	if (( CURRENT == 2 )); then
		_describe -t verbs verb verbs
		return
	fi
	shift words
	(( CURRENT-- ))
	case $words[1] in
@arguments@
	esac
}
if [ "$funcstack[1]" = _gpumem ]; then
	_gpumem "$@"
else
	compdef _gpumem gpumem
fi
